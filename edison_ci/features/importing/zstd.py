"""Zstandard data (RFC 8878), unpacked within a limit.

Python has a decoder of its own from 3.14 on; this one serves the older ones, for files of other
tools. It is slow, about a megabyte in a second, and refuses dictionaries. Checksums are not
verified: what contains the data (a ZIP file) has its own.
"""

from __future__ import annotations

from typing import NamedTuple

from edison_ci.documents.marks import Fault

_MAGIC = b"\x28\xb5\x2f\xfd"
_SKIPPABLE = range(0x184D2A50, 0x184D2A60)
_LARGEST_BLOCK = 128 * 1024
_HINT = "is the file whole?"

_LITERAL_BASE = (
    *range(16), 16, 18, 20, 22, 24, 28, 32, 40, 48, 64, 128, 256, 512, 1024, 2048, 4096, 8192,
    16384, 32768, 65536,
)  # fmt: skip
_LITERAL_BITS = (*[0] * 16, 1, 1, 1, 1, 2, 2, 3, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16)
_MATCH_BASE = (
    *range(3, 35), 35, 37, 39, 41, 43, 47, 51, 59, 67, 83, 99, 131, 259, 515, 1027, 2051, 4099,
    8195, 16387, 32771, 65539,
)  # fmt: skip
_MATCH_BITS = (*[0] * 32, 1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16)


def unpack_zstd(data: bytes, most: int) -> bytes:
    """Return the unpacked bytes; raises Fault if the data is damaged or has over `most` bytes."""
    try:
        out, at = bytearray(), 0
        while at < len(data):
            at = _Frame(data, at, out, most).read()
        return bytes(out)
    except IndexError:
        raise _damaged("it ends too early") from None


def _damaged(why: str) -> Fault:
    return Fault("syntax", f"the Zstandard data is damaged: {why}", _HINT)


# --- bits and tables ------------------------------------------------------------------------------


class _BackwardBits:
    """Bits that are read from the end of some bytes, after the highest bit that is set."""

    def __init__(self, data: bytes) -> None:
        if not data or not data[-1]:
            raise _damaged("a stream has no end mark")
        self._data = data
        self.left = 8 * (len(data) - 1) + data[-1].bit_length() - 1

    def peek(self, count: int) -> int:
        """Return the next bits, at most 57; beyond the end they are 0."""
        gap = self.left - count
        if gap < 0:
            return self.peek(self.left) << -gap if self.left > 0 else 0
        at = gap >> 3
        window = int.from_bytes(self._data[at : at + 8], "little")
        return window >> (gap & 7) & ((1 << count) - 1)

    def read(self, count: int) -> int:
        if count > self.left:
            raise _damaged("a stream ends too early")
        value = self.peek(count)
        self.left -= count
        return value


class _State(NamedTuple):
    symbol: int
    bits: int
    base: int


class _Table(NamedTuple):
    """A table of finite state entropy: the next state follows from the state and some bits."""

    accuracy: int
    states: list[_State]


def _table(accuracy: int, counts: list[int]) -> _Table:
    size = 1 << accuracy
    symbols, high = [0] * size, size - 1
    following = [max(1, count) if count else 0 for count in counts]
    for symbol, count in enumerate(counts):
        if count < 0:
            symbols[high] = symbol
            high -= 1
    step, at = (size >> 1) + (size >> 3) + 3, 0
    for symbol, count in enumerate(counts):
        for _ in range(max(0, count)):
            symbols[at] = symbol
            at = (at + step) & (size - 1)
            while at > high:
                at = (at + step) & (size - 1)
    states = []
    for symbol in symbols:
        number = following[symbol]
        following[symbol] += 1
        bits = accuracy - number.bit_length() + 1
        states.append(_State(symbol, bits, (number << bits) - size))
    return _Table(accuracy, states)


_LITERALS = _table(6, [4, 3, *[2] * 11, 1, 1, 1, *[2] * 9, 3, 2, *[1] * 5, -1, -1, -1, -1])
_MATCHES = _table(6, [1, 4, 3, *[2] * 6, *[1] * 37, *[-1] * 7])
_OFFSETS = _table(5, [*[1] * 6, 2, 2, 2, *[1] * 15, *[-1] * 5])


def _read_table(data: bytes, at: int, most_accuracy: int, symbols: int) -> tuple[_Table, int]:
    """Return a table that is described at a place, and where the description ends."""
    value, used = int.from_bytes(data[at : at + 512], "little"), 4
    accuracy = (value & 15) + 5
    if accuracy > most_accuracy:
        raise _damaged("a table is too large")
    left, threshold, width = (1 << accuracy) + 1, 1 << accuracy, accuracy + 1
    counts: list[int] = []
    while left > 1:
        if len(counts) >= symbols:
            raise _damaged("a table has too many symbols")
        bits = value >> used
        short = 2 * threshold - 1 - left
        count = bits & (threshold - 1)
        if count < short:
            used += width - 1
        else:
            count = bits & (2 * threshold - 1)
            count -= short if count >= threshold else 0
            used += width
        count -= 1
        left -= abs(count)
        counts.append(count)
        while count == 0:
            zeros = value >> used & 3
            used += 2
            counts += [0] * zeros
            if zeros < 3:
                break
        while left < threshold:
            width, threshold = width - 1, threshold >> 1
    if left != 1 or len(counts) > symbols or at + (used + 7) // 8 > len(data):
        raise _damaged("a table does not add up")
    return _table(accuracy, counts), at + (used + 7) // 8


class _Huffman(NamedTuple):
    width: int
    codes: list[tuple[int, int]]
    """Symbol and number of bits, by the next `width` bits."""


def _read_huffman(data: bytes, at: int) -> tuple[_Huffman, int]:
    head, at = data[at], at + 1
    if head >= 128:
        count = head - 127
        packed = data[at : at + (count + 1) // 2]
        weights = [each for byte in packed for each in (byte >> 4, byte & 15)][:count]
        end = at + (count + 1) // 2
    else:
        end = at + head
        table, start = _read_table(data[:end], at, 6, 13)
        weights = _weights(table, data[start:end])
    if end > len(data):
        raise _damaged("it ends too early")
    return _huffman(weights), end


def _weights(table: _Table, data: bytes) -> list[int]:
    """Return numbers that two states take turns to write."""
    bits = _BackwardBits(data)
    states = [table.states[bits.read(table.accuracy)] for _ in range(2)]
    found: list[int] = []
    while len(found) < 255:
        now = states[len(found) & 1]
        found.append(now.symbol)
        if bits.left < now.bits:
            found.append(states[len(found) & 1].symbol)
            return found
        states[(len(found) - 1) & 1] = table.states[now.base + bits.read(now.bits)]
    raise _damaged("too many weights")


def _huffman(weights: list[int]) -> _Huffman:
    total = sum(1 << weight - 1 for weight in weights if weight)
    width = total.bit_length()
    rest = (1 << width) - total
    if not total or width > 11 or rest & (rest - 1):
        raise _damaged("the weights do not add up")
    weights = [*weights, rest.bit_length()]
    codes: list[tuple[int, int]] = []
    for weight in range(1, width + 1):
        for symbol, each in enumerate(weights):
            if each == weight:
                codes += [(symbol, width + 1 - weight)] * (1 << weight - 1)
    if len(codes) != 1 << width:
        raise _damaged("the weights do not add up")
    return _Huffman(width, codes)


def _decoded(huffman: _Huffman, data: bytes, count: int) -> bytes:
    bits, out = _BackwardBits(data), bytearray()
    width, codes, peek = huffman.width, huffman.codes, bits.peek
    for _ in range(count):
        symbol, used = codes[peek(width)]
        out.append(symbol)
        bits.left -= used
        if bits.left < 0:
            break
    if bits.left:
        raise _damaged("a stream of literals has another length")
    return bytes(out)


# --- frames ---------------------------------------------------------------------------------------


class _Frame:
    """One frame: its blocks refer to what is unpacked before, and to tables of earlier blocks."""

    def __init__(self, data: bytes, at: int, out: bytearray, most: int) -> None:
        self._data, self._at, self._out, self._most = data, at, out, most
        self._start = len(out)
        self._recent = [1, 4, 8]
        self._huffman: _Huffman | None = None
        self._tables: list[_Table | None] = [None, None, None]

    def read(self) -> int:
        """Append what the frame has; return where it ends."""
        data, at = self._data, self._at
        if int.from_bytes(data[at : at + 4], "little") in _SKIPPABLE:
            return at + 8 + int.from_bytes(data[at + 4 : at + 8], "little")
        if data[at : at + 4] != _MAGIC:
            raise _damaged("a frame does not begin as it should")
        head = data[at + 4]
        at += 5 + (0 if head & 32 else 1) + (0, 1, 2, 4)[head & 3]
        if head & 3:
            raise Fault("type", "the Zstandard data needs a dictionary", "pack it without one")
        at += (1 if head & 32 else 0, 2, 4, 8)[head >> 6]
        last = 0
        while not last:
            block = data[at] | data[at + 1] << 8 | data[at + 2] << 16
            last, kind, size = block & 1, block >> 1 & 3, block >> 3
            at = self._block(kind, size, at + 3)
            if len(self._out) > self._most:
                raise Fault("size", f"it unpacks to over {self._most:,} bytes", "shorten it")
        return at + (4 if head & 4 else 0)

    def _block(self, kind: int, size: int, at: int) -> int:
        if kind == 3 or size > _LARGEST_BLOCK:
            raise _damaged("a block is of no known kind")
        if kind == 1:
            self._out += self._data[at : at + 1] * size
            return at + 1
        block = self._data[at : at + size]
        if len(block) != size:
            raise _damaged("it ends too early")
        if kind == 0:
            self._out += block
        else:
            literals, begin = self._literals(block)
            self._sequences(block, begin, literals)
        return at + size

    def _literals(self, block: bytes) -> tuple[bytes, int]:
        kind, form = block[0] & 3, block[0] >> 2 & 3
        if kind < 2:
            length = (1, 2, 1, 3)[form]
            size = int.from_bytes(block[:length], "little") >> (3 if length == 1 else 4)
            if kind == 1:
                return block[length : length + 1] * size, length + 1
            return block[length : length + size], length + size
        length, width = ((3, 10), (3, 10), (4, 14), (5, 18))[form]
        value = int.from_bytes(block[:length], "little") >> 4
        size, packed = value & ((1 << width) - 1), value >> width
        at, end = length, length + packed
        if size > _LARGEST_BLOCK or end > len(block):
            raise _damaged("literals are too long")
        if kind == 2:
            self._huffman, at = _read_huffman(block, at)
        if self._huffman is None:
            raise _damaged("a table is missing")
        if form == 0:
            return _decoded(self._huffman, block[at:end], size), end
        lengths = [int.from_bytes(block[at + i : at + i + 2], "little") for i in (0, 2, 4)]
        each, out, at = (size + 3) // 4, b"", at + 6
        for number, packed in enumerate([*lengths, end - at - sum(lengths)]):
            count = each if number < 3 else size - 3 * each
            if packed < 1 or count < 0:
                raise _damaged("literals do not add up")
            out += _decoded(self._huffman, block[at : at + packed], count)
            at += packed
        return out, end

    def _sequences(self, block: bytes, at: int, literals: bytes) -> None:
        count, at = block[at], at + 1
        if count >= 255:
            count, at = int.from_bytes(block[at : at + 2], "little") + 0x7F00, at + 2
        elif count >= 128:
            count, at = (count - 128 << 8) + block[at], at + 1
        if not count:
            self._out += literals
            return
        modes, at = block[at], at + 1
        kinds = ((9, 36, _LITERALS), (8, 32, _OFFSETS), (9, 53, _MATCHES))
        for number, (accuracy, symbols, default) in enumerate(kinds):
            mode = modes >> (6 - 2 * number) & 3
            if mode == 0:
                self._tables[number] = default
            elif mode == 1:
                if block[at] >= symbols:
                    raise _damaged("a symbol is not there")
                self._tables[number] = _Table(0, [_State(block[at], 0, 0)])
                at += 1
            elif mode == 2:
                self._tables[number], at = _read_table(block, at, accuracy, symbols)
        self._execute(_BackwardBits(block[at:]), count, literals)

    def _execute(self, bits: _BackwardBits, count: int, literals: bytes) -> None:
        tables = [table for table in self._tables if table is not None]
        if len(tables) < 3:
            raise _damaged("a table is missing")
        literal, offset, match = (table.states[bits.read(table.accuracy)] for table in tables)
        used = 0
        for number in range(count):
            distance = (1 << offset.symbol) + bits.read(offset.symbol)
            length = _MATCH_BASE[match.symbol] + bits.read(_MATCH_BITS[match.symbol])
            before = _LITERAL_BASE[literal.symbol] + bits.read(_LITERAL_BITS[literal.symbol])
            self._out += literals[used : used + before]
            used += before
            self._copy(self._offset(distance, before), length)
            if number < count - 1:
                literal = tables[0].states[literal.base + bits.read(literal.bits)]
                match = tables[2].states[match.base + bits.read(match.bits)]
                offset = tables[1].states[offset.base + bits.read(offset.bits)]
        if bits.left or used > len(literals):
            raise _damaged("the sequences do not add up")
        self._out += literals[used:]

    def _offset(self, value: int, before: int) -> int:
        """Return a distance; small values stand for one of the last three."""
        recent = self._recent
        if value > 3:
            self._recent = [value - 3, recent[0], recent[1]]
        elif (index := value - 1 + (before == 0)) == 3:
            self._recent = [recent[0] - 1, recent[0], recent[1]]
        else:
            rest = [each for i, each in enumerate(recent) if i != index]
            self._recent = [recent[index], *rest]
        return self._recent[0]

    def _copy(self, distance: int, length: int) -> None:
        out = self._out
        start = len(out) - distance
        if distance < 1 or start < self._start or len(out) + length > self._most + _LARGEST_BLOCK:
            raise _damaged("it refers to what is not there")
        if distance >= length:
            out += out[start : start + length]
        else:
            piece = bytes(out[start:])
            out += (piece * (length // distance + 1))[:length]
