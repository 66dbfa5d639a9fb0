"""Only UTF-8 is text, and what is not has a line and a column."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edison_ci.documents.decoding import decode, place, text_lines
from edison_ci.documents.marks import Fault


def fault_in(data: bytes) -> Fault:
    with pytest.raises(Fault) as raised:
        decode(data)
    return raised.value


def test_text_is_decoded() -> None:
    assert decode("a\r\né 😀\n".encode()) == "a\r\né 😀\n"


def test_a_byte_order_mark_is_left_out_once() -> None:
    assert decode(b"\xef\xbb\xbfa") == "a"
    assert decode(b"\xef\xbb\xbf\xef\xbb\xbfa") == "\ufeffa"
    assert decode(b"") == ""


@pytest.mark.parametrize(
    ("data", "at", "byte"),
    [
        (b"\xff", (0, 0), "0xff"),
        ("é\né".encode() + b"\xe9 x", (1, 1), "0xe9"),
        (b"a\nb\xc0\xaf", (1, 1), "0xc0"),
        (b"\xed\xa0\x80", (0, 0), "0xed"),
        (b"abc\xe2\x82", (0, 3), "0xe2"),
        (b"\xf4\x90\x80\x80", (0, 0), "0xf4"),
        (b"\xef\xbb\xbfab\x80", (0, 2), "0x80"),
    ],
)
def test_a_byte_that_is_not_utf8_is_named_with_its_place(
    data: bytes, at: tuple[int, int], byte: str
) -> None:
    fault = fault_in(data)
    assert (fault.code, fault.at, fault.message) == ("encoding", at, f"byte {byte} is not UTF-8")
    assert fault.hint == "save the file as UTF-8"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_other_unicode_encodings_are_recognised(encoding: str) -> None:
    assert fault_in("version: 1\n".encode(encoding)).hint == (
        "this is UTF-16; save the file as UTF-8"
    )


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16_without_a_mark_is_recognised_by_its_zero_bytes(encoding: str) -> None:
    fault = fault_in("version: 1\n".encode(encoding))
    assert (fault.code, fault.hint) == (
        "nul-byte",
        "this looks like UTF-16; save the file as UTF-8",
    )


def test_a_nul_byte_is_refused_with_its_place() -> None:
    fault = fault_in("first line\né\0".encode())
    assert (fault.code, fault.at, fault.hint) == ("nul-byte", (1, 1), "remove it")


@given(st.text(alphabet="ab\n\ré"), st.data())
def test_a_place_is_the_line_and_what_stands_before_it(text: str, data: st.DataObject) -> None:
    offset = data.draw(st.integers(0, len(text)))
    line, column = place(text, offset)
    before = text[:offset].split("\n")
    assert (line, column) == (len(before) - 1, len(before[-1]))


# --- lines of large files -------------------------------------------------------------------------


class Trickle(io.BytesIO):
    """A file that is read a few bytes at a time, whatever is asked for."""

    def __init__(self, data: bytes, step: int) -> None:
        super().__init__(data)
        self._step = step

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(self._step)


def lines(data: bytes, *, longest: int = 100, step: int = 1_000) -> list[str | tuple[str, object]]:
    read = text_lines(Trickle(data, step), longest=longest)
    return [(line.code, line.at) if isinstance(line, Fault) else line for line in read]


@pytest.mark.parametrize("step", [3, 4, 5, 1_000])
def test_lines_keep_their_ends_and_only_newlines_end_them(step: int) -> None:
    data = "\ufeffa\r\n\nb\u2028c\x0bd\x85e\rf\nlast".encode()
    assert lines(data, step=step) == ["a\r\n", "\n", "b\u2028c\x0bd\x85e\rf\n", "last"]


@pytest.mark.parametrize("step", [3, 7, 1_000])
def test_a_bad_line_does_not_hide_the_others(step: int) -> None:
    data = "é\n".encode() + b"\xff\nok\nx\0\nend\n"
    assert lines(data, step=step) == [
        "é\n",
        ("encoding", (1, 0)),
        "ok\n",
        ("nul-byte", (3, 1)),
        "end\n",
    ]


@pytest.mark.parametrize("step", [3, 8, 10, 11, 1_000])
def test_a_line_that_is_too_long_is_passed_over(step: int) -> None:
    data = b"0123456789\n0123456789x\nok\n" + b"y" * 50
    assert lines(data, longest=10, step=step) == [
        "0123456789\n",
        ("size", (1, 0)),
        "ok\n",
        ("size", (3, 0)),
    ]


@given(
    st.lists(st.text(alphabet="aé\r\x00", max_size=12), max_size=8),
    st.integers(3, 20),
    st.integers(4, 16),
)
def test_lines_do_not_depend_on_where_blocks_end(texts: list[str], step: int, longest: int) -> None:
    data = "\n".join(texts).encode()
    assert lines(data, longest=longest, step=step) == lines(data, longest=longest, step=10_000)
