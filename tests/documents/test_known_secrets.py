"""Secrets in use: found in every form, in everything that leaves the process."""

from __future__ import annotations

import base64
import io
import json
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edison_ci.contracts import CallError, ErrorKind
from edison_ci.documents.secrets import (
    MASK,
    RedactingStream,
    hidden,
    hidden_in,
    learn,
    redacted,
    remember,
)
from edison_ci.providers.failures import Scrubber

if TYPE_CHECKING:
    from collections.abc import Iterator

SECRET = 'zQ8/w+"1\\k=~7x'
PRINTABLE = st.characters(min_codepoint=33, max_codepoint=126)


@pytest.fixture(autouse=True)
def known() -> Iterator[None]:
    learn({"SOME_API_KEY": SECRET})
    yield
    learn({})


@pytest.mark.parametrize(
    "form",
    [
        SECRET,
        json.dumps(SECRET),
        json.dumps(json.dumps({"a": json.dumps([SECRET])})),
        "".join(f"\\u{ord(letter):04X}" for letter in SECRET),
        json.dumps(SECRET).replace("/", "\\/"),
        quote(SECRET, safe=""),
        quote(SECRET, safe="").replace("%2F", "%2f"),
        quote(SECRET, safe="/+="),
        SECRET.replace("Q", "%51").replace("k", "\\u006b"),
        SECRET.encode().hex(),
        SECRET.encode().hex().upper(),
    ],
)
def test_a_secret_is_found_as_it_may_be_written(form: str) -> None:
    found = hidden(f"before {form} after")
    assert MASK in found
    assert found.startswith("before ")
    assert found.endswith(" after")
    assert "w+" not in found


@given(
    secret=st.text(PRINTABLE, min_size=8, max_size=40),
    before=st.binary(max_size=5),
    after=st.binary(max_size=5),
    url=st.booleans(),
)
def test_a_secret_within_base64_is_found_wherever_it_stands(
    secret: str, before: bytes, after: bytes, url: bool
) -> None:
    learn({})
    remember([secret])
    encode = base64.urlsafe_b64encode if url else base64.b64encode
    assert MASK in hidden(encode(before + secret.encode() + after).decode())


@given(
    secret=st.text(PRINTABLE, min_size=8, max_size=30), around=st.text(max_size=20), data=st.data()
)
def test_no_text_that_says_a_secret_says_it_afterwards(
    secret: str, around: str, data: st.DataObject
) -> None:
    learn({})
    remember([secret.strip()])
    text = f"{around}{secret}{around}"
    for _ in range(data.draw(st.integers(0, 3))):
        text = json.dumps(text, ensure_ascii=data.draw(st.booleans()))
    assert secret not in hidden(text)
    if len(secret.strip()) >= 8:
        assert MASK in hidden(text)


@pytest.mark.parametrize(
    ("name", "value", "held_back"),
    [
        ("OPENAI_API_KEY", "not-like-any-known-key", True),
        ("github_token", "abcdefgh-1234", True),
        ("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMIK7MDENGbPxRfiCY", True),
        ("SLACK_WEBHOOK_URL", "https://hooks.example.com/T000/B000", True),
        ("DB_PASSWORD", "Tr0ub4dor&3", True),
        ("OPENAI_API_KEY", "short", False),
        ("SOME_TOKEN", "production", False),
        ("SSH_PRIVATE_KEY", "/home/me/.ssh/id_ed25519", False),
        ("MAX_TOKENS", "4096409640964096", False),
        ("HOME", "a-value-like-any-other", False),
        ("KEYBOARD", "a-value-like-any-other", False),
    ],
)
def test_secrets_are_known_by_the_names_of_their_variables(
    name: str, value: str, held_back: bool
) -> None:
    learn({name: value})
    assert (hidden(f"x {value} y") == f"x {MASK} y") is held_back


def test_what_is_taken_into_use_is_known_whatever_its_name() -> None:
    assert hidden("odd-name-odd-value") == "odd-name-odd-value"
    Scrubber(["odd-name-odd-value"])
    assert hidden("odd-name-odd-value") == MASK
    assert hidden(SECRET) == MASK, "and what was known stays known"


def test_every_way_out_uses_it() -> None:
    assert redacted(f"a {SECRET}") == f"a {MASK}"
    assert hidden_in({SECRET: [SECRET, 1, None, {"a": f"<{SECRET}>"}]}) == {
        MASK: [MASK, 1, None, {"a": f"<{MASK}>"}]
    }
    error = CallError(ErrorKind.INVALID_KEY, f"no such key: {SECRET}")
    assert (error.message, str(error)) == (
        f"no such key: {MASK}",
        f"INVALID_KEY: no such key: {MASK}",
    )
    below = io.StringIO()
    stream = RedactingStream(below)
    stream.write(f"one {SECRET}\n")
    stream.writelines([f"two {SECRET}\n"])
    stream.flush()
    assert below.getvalue() == f"one {MASK}\ntwo {MASK}\n"
    assert stream.isatty() is False


def test_a_long_row_of_backslashes_is_searched_once() -> None:
    text = "z\\" + "\\" * 200_000 + SECRET
    assert hidden(text).endswith(MASK)
