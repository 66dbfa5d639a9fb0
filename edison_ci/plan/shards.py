"""Which part of the cases does each of several machines run?"""

from __future__ import annotations

import hashlib
import re

from edison_ci.errors import UsageError
from edison_ci.frozen import dataclass

MAX_SHARDS = 256


@dataclass(frozen=True, slots=True)
class Shard:
    """Part `index` of `count`, counted from 1."""

    index: int
    count: int

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    def has(self, case_id: str) -> bool:
        """Whether a case belongs to this part; all draws and models of a case stay together."""
        return shard_of(case_id, self.count) == self.index


def shard_of(case_id: str, count: int) -> int:
    """Return the part a case belongs to; it depends on the id alone."""
    digest = hashlib.sha256(f"shard:{case_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % count + 1


def parse_shard(text: str) -> Shard:
    """Return the shard written as I/N."""
    found = re.fullmatch(r"([0-9]{1,3})/([0-9]{1,3})", text)
    if found:
        index, count = int(found.group(1)), int(found.group(2))
        if 1 <= index <= count <= MAX_SHARDS:
            return Shard(index, count)
    raise UsageError(f"{text!r} is not a shard", hint=f"write 1/4 to 4/4, at most {MAX_SHARDS}")
