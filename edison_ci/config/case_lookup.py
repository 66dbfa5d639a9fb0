"""Which row of a dataset is a case, without reading all the others?

In a file of JSON lines a case stands on the line that has its id, so only lines with the text of
the id are parsed. They are parsed by what reads whole datasets, so a row means the same.
"""

from __future__ import annotations

import io
import json
import mmap
import re
from typing import TYPE_CHECKING, BinaryIO

from edison_ci.config.cases import CaseFeed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from edison_ci.config.dataset_entry import DatasetEntry
    from edison_ci.documents.files import Tree

_CONTENT_ID = re.compile(r"[0-9a-f]{16}")
_WRITTEN_ONE_WAY = re.compile(r"[ !#-.0-\[\]-~]+")
"""Texts that JSON writes as they are; others have several spellings."""


def can_be_looked_up(ids: Collection[str], entries: Sequence[DatasetEntry]) -> bool:
    """Whether the lines of these cases can be found by the text of their ids.

    The id of a row that names none is a hash of its content, which stands nowhere.
    """
    return all(
        _WRITTEN_ONE_WAY.fullmatch(each) and not _CONTENT_ID.fullmatch(each) for each in ids
    ) and all(entry.path.endswith(".jsonl") and not entry.map for entry in entries)


def looked_up(
    tree: Tree, entries: Sequence[DatasetEntry], types: dict[str, str], ids: Collection[str]
) -> CaseFeed:
    """Return the cases on lines that have one of the ids in them; their line numbers are lost."""
    return CaseFeed(_Narrowed(tree, ids), tuple(entries), types)


class _Narrowed:
    """The files of a tree with the lines alone that have one of some texts in them."""

    def __init__(self, tree: Tree, texts: Collection[str]) -> None:
        self._tree = tree
        self._texts = [json.dumps(text).encode() for text in texts]

    def open(self, path: str, *, max_bytes: int | None = None) -> BinaryIO:
        with self._tree.open(path, max_bytes=max_bytes) as stream:
            if stream.seek(0, io.SEEK_END) == 0:
                return io.BytesIO()
            try:
                data: bytes | mmap.mmap = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
            except (OSError, ValueError):  # a file of a commit is in memory
                stream.seek(0)
                data = stream.read()
            return io.BytesIO(b"".join(_lines(data, self._texts)))

    def names(self, folder: str) -> list[str]:
        return self._tree.names(folder)

    def exists(self, path: str) -> bool:
        return self._tree.exists(path)


def _lines(data: bytes | mmap.mmap, texts: Sequence[bytes]) -> Iterator[bytes]:
    """Yield each line that has one of the texts in it, once and in order."""
    found: dict[int, int] = {}
    for text in texts:
        at = data.find(text)
        while at >= 0:
            start, end = data.rfind(b"\n", 0, at) + 1, data.find(b"\n", at)
            end = len(data) if end < 0 else end + 1
            found[start] = end
            at = data.find(text, end)
    for start, end in sorted(found.items()):
        yield data[start:end]
