"""Ways to damage a file that was valid."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable

NASTY = [
    *(b"\0", b"\xff", b"\xef\xbb\xbf", b"\r", b"\r\n", b"\t", b"\n", b"\n\n---\n", b"\x1b[31m"),
    *("\u200b".encode(), "\u202e".encode(), "\u2028".encode(), "\x85".encode(), "é😀".encode()),
    *(b"'", b'"', b"\\", b"`", b"{", b"}", b"[", b"]", b"(", b")", b",", b":", b": ", b"- ", b"#"),
    *(b"&a ", b"*a", b"!!str ", b"<<: ", b"? ", b"| ", b"> ", b"%", b"@", b"~", b"---\n", b"...\n"),
    *(b"{{", b"}}", b"{%", b"%}", b"{#", b"{{ x }}", b"{% for x in y %}", b"{% endif %}", b"|e"),
    *(b"null", b"true", b"no", b"NaN", b"Infinity", b"1e999", b"-1", b"0", b"010", b"1_000"),
    *(b"9" * 30, b"9" * 500, b"0.5", b"80%", b"5pp", b"[]", b"{}", b"''", b'""', b"{a: 1}", b"[a]"),
    *(b"../", b"/etc/passwd", b"https://evil.example/", b"C:\\", b"~/", b"prompts/", b".yaml"),
    *(b"__class__", b"version", b"\\ud800", b"\\u0000", b"(a+)+$", b"$ref", b"a" * 300, b"[" * 60),
]
"""What is put where it does not belong."""

_WORD = re.compile(rb"[A-Za-z0-9_.%-]+")
_VALUE = re.compile(rb"(?<=[:,\[{-]) *[^\s,\[\]{}#][^,\[\]{}#\n]*")

Mutation = "Callable[[bytes], bytes]"


def _at(data: bytes, share: float) -> int:
    return int(share * len(data))


def _flip(share: float, bit: int) -> Callable[[bytes], bytes]:
    def mutate(data: bytes) -> bytes:
        if not data:
            return data
        place = min(_at(data, share), len(data) - 1)
        return data[:place] + bytes([data[place] ^ (1 << bit)]) + data[place + 1 :]

    return mutate


def _insert(share: float, what: bytes) -> Callable[[bytes], bytes]:
    return lambda data: data[: _at(data, share)] + what + data[_at(data, share) :]


def _cut(start: float, length: float) -> Callable[[bytes], bytes]:
    return lambda data: data[: _at(data, start)] + data[_at(data, start) + int(length * 200) :]


def _truncate(share: float) -> Callable[[bytes], bytes]:
    return lambda data: data[: _at(data, share)]


def _on_lines(share: float, change: str, other: float) -> Callable[[bytes], bytes]:
    def mutate(data: bytes) -> bytes:
        lines = data.split(b"\n")
        here = min(int(share * len(lines)), len(lines) - 1)
        there = min(int(other * len(lines)), len(lines) - 1)
        if change == "delete":
            del lines[here]
        elif change == "repeat":
            lines.insert(here, lines[here])
        elif change == "swap":
            lines[here], lines[there] = lines[there], lines[here]
        elif change == "indent":
            lines[here] = b"  " + lines[here]
        elif change == "outdent":
            lines[here] = lines[here].lstrip()
        elif change == "join":
            lines[here : here + 2] = [b" ".join(lines[here : here + 2])]
        else:
            lines[here : here + 1] = [lines[here]] * 200
        return b"\n".join(lines)

    return mutate


def _on_matches(
    pattern: re.Pattern[bytes], share: float, what: bytes | None, other: float
) -> Callable[[bytes], bytes]:
    """Replace one match by something nasty, or by another match."""

    def mutate(data: bytes) -> bytes:
        found = list(pattern.finditer(data))
        if not found:
            return data
        here = found[min(int(share * len(found)), len(found) - 1)]
        there = found[min(int(other * len(found)), len(found) - 1)]
        new = b" " + what if what is not None else there.group()
        return data[: here.start()] + new + data[here.end() :]

    return mutate


SHARE = st.floats(0, 1, exclude_max=True)
WHAT = (
    st.sampled_from(NASTY)
    | st.binary(max_size=8)
    | st.text(max_size=8).map(lambda text: text.encode("utf-8", errors="surrogatepass"))
)
MUTATIONS = st.one_of(
    st.builds(_flip, SHARE, st.integers(0, 7)),
    st.builds(_insert, SHARE, WHAT),
    st.builds(_cut, SHARE, SHARE),
    st.builds(_truncate, SHARE),
    st.builds(
        _on_lines,
        SHARE,
        st.sampled_from(["delete", "repeat", "swap", "indent", "outdent", "join", "many"]),
        SHARE,
    ),
    st.builds(_on_matches, st.just(_WORD), SHARE, st.none() | WHAT, SHARE),
    st.builds(_on_matches, st.just(_VALUE), SHARE, st.none() | WHAT, SHARE),
)
"""One way to damage the bytes of a file."""


def damaged(data: bytes, mutations: list[Callable[[bytes], bytes]]) -> bytes:
    """Return a file after several mutations, never much larger than it was."""
    for mutate in mutations:
        data = mutate(data)[:200_000]
    return data
