"""How is the report of an import told, and what is an import called?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.importing.drafts import file_name
from edison_ci.importing.fidelity import Status

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from edison_ci.errors import Location
    from edison_ci.importing.fidelity import Fidelity

_INDEX = re.compile(r"\[\d+\]")


class Line(NamedTuple):
    """Keys that became of the same kind of thing in the same way, told together."""

    status: Status
    where: Location
    """Where the first of them stands."""
    key: str
    times: int
    target: str
    note: str

    def __str__(self) -> str:
        several = f" ({self.times:,} times)" if self.times > 1 else ""
        target = f" -> {self.target}" if self.target else ""
        note = f": {self.note}" if self.note else ""
        return f"{self.where}  {self.key}{several}{target}{note}"


def lines_of(fidelity: Fidelity, status: Status) -> list[Line]:
    """Return what there is to say of the keys with a status, like ones together."""
    found: dict[tuple[str, str, str, str], Line] = {}
    for entry in fidelity.ordered():
        if entry.status is not status:
            continue
        general = _INDEX.sub("[]", entry.key)
        group = (entry.where.file, general, entry.target, entry.note)
        known = found.get(group)
        if known is None:
            line = Line(status, entry.where, entry.key, 1, entry.target, entry.note)
        else:
            line = known._replace(key=general, times=known.times + 1)
        found[group] = line
    return list(found.values())


def as_markdown(title: str, fidelities: Iterable[Fidelity], files: Iterable[str]) -> str:
    """Return the report as a page."""
    reports = list(fidelities)
    parts = [f"# {title}\n"]
    for status in (Status.UNSUPPORTED, Status.APPROXIMATED, Status.MAPPED):
        entries = [e for report in reports for e in report.ordered() if e.status is status]
        parts.append(f"## {status.capitalize()} ({len(entries)})\n")
        if entries:
            parts.append("| place | key | went to | remark |\n| --- | --- | --- | --- |")
            rows = ((str(e.where), e.key, e.target, e.note) for e in entries)
            parts += [f"| {' | '.join(map(_cell, row))} |" for row in rows]
            parts.append("")
    parts.append("## Files\n")
    parts += [f"- `{name}`" for name in files]
    return "\n".join(parts) + "\n"


def _cell(text: str) -> str:
    plain = re.sub(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]", " ", text)
    return re.sub(r"([|<>`\\*_\[\]])", r"\\\1", plain)


def name_for(path: Path) -> str:
    """Return what the import of a file is called: its stem, or its folder's name."""
    stem = path.name.partition(".")[0]
    if stem.lower() in ("promptfooconfig", "prompt", "config", ""):
        stem = path.resolve().parent.name
    return file_name(stem, "imported")
