"""Sealed keys: boxes that open in one repository, under one name, with one private key."""

from __future__ import annotations

import contextlib
import datetime as dt
from typing import TYPE_CHECKING

import pytest

from edison_ci.access.job import KeyEnvironment
from edison_ci.access.sealed_keys import (
    LOCAL,
    find_private_key,
    generate_key,
    key_path,
    open_box,
    read_private_key,
    repository_name,
    seal,
    store_private_key,
)
from edison_ci.config.sealed import PRIVATE_KEY, SecretsFile
from edison_ci.documents.secrets import hidden, learn, redacted
from edison_ci.errors import UsageError
from tests.fixed_keys import sealing_key
from tests.respelled import respelled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edison_ci.access.sealed_keys import PrivateKey
    from edison_ci.config.sealed import SealedKey
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

DAY = dt.date(2026, 11, 17)
HERE = "github.com/acme/prompts"
VALUE = "vendor-key-0123456789-wxyz"


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    yield
    learn({})


@pytest.fixture
def private() -> PrivateKey:
    return sealing_key("ours")


def file_of(private: PrivateKey) -> SecretsFile:
    return SecretsFile(public_key=private.public)


def sealed(private: PrivateKey, name: str = "VENDOR_KEY", value: str = VALUE) -> SealedKey:
    return seal(name, value, secrets=file_of(private), repository=HERE, day=DAY)


def test_a_box_opens_with_its_private_key_only(private: PrivateKey) -> None:
    key = sealed(private)
    assert open_box(key, private, HERE) == VALUE
    assert VALUE not in key.box
    with pytest.raises(UsageError, match="damaged, or sealed for another private key"):
        open_box(key, sealing_key("theirs"), HERE)


def test_a_box_is_of_no_use_elsewhere_or_under_another_name(private: PrivateKey) -> None:
    key = sealed(private)
    with pytest.raises(UsageError, match=f"sealed for {HERE}, and this is github.com/eve/fork"):
        open_box(key, private, "github.com/eve/fork")
    renamed = key.model_copy(update={"name": "GATE_KEY"})
    with pytest.raises(UsageError, match="GATE_KEY was sealed as 'VENDOR_KEY', and renamed"):
        open_box(renamed, private, HERE)


@pytest.mark.parametrize("at", [0, 40, -4])
def test_an_edited_box_does_not_open(private: PrivateKey, at: int) -> None:
    key = sealed(private)
    letters = list(key.box)
    letters[at] = "A" if letters[at] != "A" else "B"
    with pytest.raises(UsageError, match="cannot be opened: it was damaged"):
        open_box(key.model_copy(update={"box": "".join(letters)}), private, HERE)


def test_a_box_opens_in_one_spelling_only(private: PrivateKey) -> None:
    key = sealed(private)
    for text in respelled(key.box):
        with pytest.raises(UsageError, match="cannot be opened: it was damaged"):
            open_box(key.model_copy(update={"box": text}), private, HERE)


def test_a_box_that_is_no_key_of_ours_does_not_open(private: PrivateKey) -> None:
    from base64 import b64decode, b64encode

    from nacl.public import PublicKey, SealedBox

    box = SealedBox(PublicKey(b64decode(private.public))).encrypt(b'["' + b"x" * 80 + b'"]')
    foreign = sealed(private).model_copy(update={"box": b64encode(box).decode()})
    with pytest.raises(UsageError, match="cannot be opened"):
        open_box(foreign, private, HERE)


def test_boxes_do_not_tell_how_long_a_key_is(private: PrivateKey) -> None:
    short, long = sealed(private, value="k" * 12), sealed(private, value="k" * 90)
    assert len(short.box) == len(long.box)


def test_what_is_opened_is_masked_in_everything_that_is_printed(private: PrivateKey) -> None:
    key = sealed(private)
    learn({})
    assert hidden(VALUE) == VALUE
    open_box(key, private, HERE)
    assert hidden(f"Bearer {VALUE}") == "Bearer [key]"
    learn({})
    assert private.text not in redacted(f"oops: {private.text}")
    assert private.text not in repr(private)


# --- the private key ------------------------------------------------------------------------------


def test_each_private_key_is_a_new_one() -> None:
    keys = [generate_key() for _ in range(3)]
    assert len({text for key in keys for text in key}) == 6
    assert [read_private_key(key.text, "it") for key in keys] == keys


def test_the_private_key_lies_in_a_file_that_only_its_owner_reads(private: PrivateKey) -> None:
    path = store_private_key(private)
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert find_private_key(private.public) == private
    path.chmod(0o640)
    with pytest.raises(UsageError, match=r"others can read the private key .* \(mode 0640\)"):
        find_private_key(private.public)


def test_a_wrong_or_rotated_private_key_is_told_apart_from_none(
    private: PrivateKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="is not here") as none:
        find_private_key(private.public)
    assert PRIVATE_KEY in none.value.hint
    other = sealing_key("theirs")
    monkeypatch.setenv(PRIVATE_KEY, other.text)
    with pytest.raises(UsageError, match="another private key than that of") as wrong:
        find_private_key(private.public)
    assert "rotated" in wrong.value.hint
    monkeypatch.setenv(PRIVATE_KEY, f"{other.text}\n{private.text}\n")
    assert find_private_key(private.public) == private  # both, while a rotation is merged
    monkeypatch.setenv(PRIVATE_KEY, "sk-something-else-entirely")
    with pytest.raises(UsageError, match="is not a private key of edison") as broken:
        find_private_key(private.public)
    assert "sk-something" not in str(broken.value)


def test_a_broken_or_swapped_file_of_the_private_key_is_refused(private: PrivateKey) -> None:
    path = store_private_key(private)
    path.write_text(sealing_key("theirs").text)
    with pytest.raises(UsageError, match="belongs to another public key"):
        find_private_key(private.public)
    path.write_text(private.text[:-9])
    with pytest.raises(UsageError, match="is not a private key of edison"):
        find_private_key(private.public)
    assert key_path(private.public) == path


def test_a_private_key_is_read_in_one_spelling_only(private: PrivateKey) -> None:
    assert read_private_key(private.text, "it") == private
    for text in respelled(private.text):
        with contextlib.suppress(UsageError):
            assert read_private_key(text, "it").text == text, "it is another key"
        learn({})  # each would be looked for in all that is printed


# --- the repository -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://github.com/Acme/Prompts.git", HERE),
        ("https://x-access-token:t0ken@github.com/acme/prompts", HERE),
        ("git@github.com:acme/prompts.git", HERE),
        ("ssh://git@gitlab.example:2222/team/sub/prompts.git", "gitlab.example/team/sub/prompts"),
        ("/srv/git/prompts.git", LOCAL),
        ("file:///srv/git/prompts.git", LOCAL),
    ],
)
def test_a_repository_is_known_by_its_remote(folder: Folder, url: str, name: str) -> None:
    folder.git("init", "--quiet")
    assert repository_name(folder.path, {}) == LOCAL
    folder.git("remote", "add", "origin", url)
    assert repository_name(folder.path, {}) == name


def test_in_actions_github_says_which_repository_it_is(folder: Folder) -> None:
    named = {"GITHUB_ACTIONS": "true", "GITHUB_REPOSITORY": "Acme/Prompts"}
    assert repository_name(folder.path, named) == HERE
    enterprise = {**named, "GITHUB_SERVER_URL": "https://ghe.example"}
    assert repository_name(folder.path, enterprise) == "ghe.example/acme/prompts"
    assert repository_name(folder.path, {"GITHUB_REPOSITORY": "eve/fork"}) == LOCAL


# --- use ------------------------------------------------------------------------------------------


def test_a_sealed_key_stands_in_for_a_variable_that_is_not_set(
    folder: Folder, private: PrivateKey
) -> None:
    secrets = file_of(private).with_key(
        seal("VENDOR_KEY", VALUE, secrets=file_of(private), repository=LOCAL, day=DAY)
    )
    environ = {PRIVATE_KEY: private.text, "PATH": "/bin", "EMPTY": ""}
    known = KeyEnvironment(secrets, folder.path, environ)
    assert known["VENDOR_KEY"] == VALUE
    assert known["PATH"] == "/bin"
    assert known.get("OTHER") is None
    assert (known.has("VENDOR_KEY"), known.is_set("VENDOR_KEY"), known.has("EMPTY")) == (
        *(True, False, False),
    )
    assert {*known} == {*environ, "VENDOR_KEY"} and len(known) == 4
    set_too = KeyEnvironment(secrets, folder.path, {**environ, "VENDOR_KEY": "from outside"})
    assert set_too["VENDOR_KEY"] == "from outside"
    # GitHub passes a secret that does not exist on as an empty text.
    assert (
        KeyEnvironment(secrets, folder.path, {**environ, "VENDOR_KEY": ""})["VENDOR_KEY"] == VALUE
    )
