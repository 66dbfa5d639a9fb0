"""A results file counts with a signature that fits its very bytes, and with no other."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from edison_ci.access.own_results import is_signed, sign, signature_path
from edison_ci.errors import UsageError
from tests.fixed_keys import signing_keys
from tests.respelled import respelled

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.daily


PAIR = signing_keys("ours")


@pytest.fixture
def results(tmp_path: Path) -> Path:
    path = tmp_path / "results.db"
    path.write_bytes(b"SQLite format 3\0" + bytes(range(256)) * 100)
    return path


def test_a_signature_fits_its_file_and_key(results: Path) -> None:
    other = signing_keys("theirs")
    assert not is_signed(results, [PAIR.public]), "nobody has signed it yet"
    assert sign(results, f"{PAIR.private}\n") == PAIR.public
    assert is_signed(results, [other.public, PAIR.public])
    assert not is_signed(results, [other.public])
    assert not is_signed(results, [])
    assert not is_signed(results, [PAIR.private, "none", ""])


@pytest.mark.parametrize("place", [0, 5_000, -1])
def test_one_other_bit_is_another_file(results: Path, place: int) -> None:
    sign(results, PAIR.private)
    data = bytearray(results.read_bytes())
    data[place] ^= 1
    results.write_bytes(data)
    assert not is_signed(results, [PAIR.public])


@pytest.mark.parametrize("text", ["", "ed25519 ", "ed25519 AAAA", "rsa AAAA", "\xff" * 500])
def test_what_is_no_signature_fits_nothing(results: Path, text: str) -> None:
    signature_path(results).write_text(text, encoding="utf-8")
    assert not is_signed(results, [PAIR.public])


def test_another_spelling_of_the_signature_fits_nothing(results: Path) -> None:
    sign(results, PAIR.private)
    path = signature_path(results)
    kind, signature = path.read_text(encoding="ascii").removesuffix("\n").split(" ")
    others = [text for text in respelled(signature) if text != f"{signature}\n"]
    for text in (*others, f"{signature}\n\n", f"{signature}\n{signature}"):
        path.write_text(f"{kind} {text}", encoding="utf-8", errors="surrogatepass")
        assert not is_signed(results, [PAIR.public]), text
    path.write_text(f"{kind} {signature}\n", encoding="ascii")
    assert is_signed(results, [PAIR.public])
    assert not is_signed(results, respelled(PAIR.public))


@pytest.mark.parametrize("suffix", ["-wal", "-journal"])
def test_a_log_beside_the_file_could_change_what_it_says(results: Path, suffix: str) -> None:
    sign(results, PAIR.private)
    results.with_name(results.name + suffix).write_bytes(b"more")
    assert not is_signed(results, [PAIR.public])
    with pytest.raises(UsageError, match="there is a log beside it"):
        sign(results, PAIR.private)


@pytest.mark.parametrize("key", ["", "none", "AAAA"])
def test_a_wrong_key_signs_nothing_and_is_not_shown(results: Path, key: str) -> None:
    with pytest.raises(UsageError) as refused:
        sign(results, key)
    assert "EDISON_SIGNING_KEY is not a valid private key" in refused.value.message
    assert not key or key not in str(refused.value)
    assert not signature_path(results).exists()


def test_a_missing_library_is_named(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sign(results, PAIR.private)
    for name in [name for name in sys.modules if name.startswith("cryptography.hazmat.primitives")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric", None)
    assert not is_signed(results, []), "who lists no key needs no library"
    with pytest.raises(UsageError, match="need the library cryptography") as refused:
        is_signed(results, [PAIR.public])
    assert "pip install" in refused.value.hint
