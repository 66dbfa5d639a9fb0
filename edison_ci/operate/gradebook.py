"""Grades of people, written down with the audit.

In the results, in one transaction with its row of the audit, and then, where the rubric names a
file of labels, as a further line of that file. A line goes out in one piece, on a line of its own.
"""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edison_ci._dataclass import dataclass
from edison_ci.documents.secrets import redacted
from edison_ci.errors import UsageError
from edison_ci.operate.actors import Role
from edison_ci.store.grades import write_grade

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edison_ci.config.labels import Label, ScaleName
    from edison_ci.operate.actors import Actor
    from edison_ci.operate.site import Site
    from edison_ci.store.grades import ManualGrade


@dataclass(frozen=True, slots=True)
class Given:
    """What somebody says of an answer."""

    scale: ScaleName | None = None
    """None, like `grade`, for a flag alone, or for taking one back."""
    grade: float | None = None
    note: str = ""
    flag: bool = False
    criteria: Mapping[str, float] = field(default_factory=dict)
    """On the scales of the rubric."""


@dataclass(frozen=True, slots=True)
class GradeBook:
    """Writes down the grades of one person."""

    site: Site
    actor: Actor
    labels: str | None
    """Path of the labels file; None when the rubric names none."""

    @classmethod
    def of(cls, site: Site, labels: str | None) -> GradeBook:
        """Return the book of whoever is acting; who may not grade is refused."""
        return cls(site, site.require(Role.REVIEWER, "grade"), labels)

    def enter(
        self, grade: ManualGrade, label: Label | None, *, run_id: str, before: Any = None
    ) -> None:
        """Write a grade down; a flag alone has no label."""
        after = {"score": grade.score, "scale": grade.scale, "flagged": grade.flagged}
        entry = self.site.entry(
            self.actor, "grade", f"cell {grade.cell_id[:12]}", before=before, after=after
        )
        entry = dataclasses.replace(entry, run_id=run_id)
        write_grade(self.site.results, grade, entry)
        if label is not None and self.labels is not None:
            append_line(self.site.root, self.labels, line_of(label))


def line_of(label: Label) -> str:
    """Return a label as a line of its file; what looks like a secret is not written."""
    told = label.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    if "output" in told and redacted(told["output"]) != told["output"]:
        told["answer"] = label.key[1]
        del told["output"]
    if "note" in told:
        told["note"] = redacted(told["note"])
    if float(told["grade"]).is_integer():
        told["grade"] = int(told["grade"])
    text = json.dumps(told, ensure_ascii=False)
    # What nobody can see is written as an escape; letters of any script stay readable.
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def append_line(root: Path, name: str, line: str) -> None:
    """Add a line to a file inside the project, on a line of its own whatever stands before it."""
    path = root / name
    real = Path(os.path.realpath(path))
    if not real.is_relative_to(os.path.realpath(root)):
        raise UsageError(
            f"{name} is a link that leaves the project; the grade is kept in the results",
            hint="put a file of its own there",
        )
    try:
        real.parent.mkdir(parents=True, exist_ok=True)
        with real.open("a+b") as stream:
            size = stream.seek(0, os.SEEK_END)
            if size:
                stream.seek(size - 1)
            broken = bool(size) and stream.read(1) != b"\n"
            data = line.encode("utf-8", "surrogatepass")
            stream.write((b"\n" if broken else b"") + data + b"\n")
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise UsageError(
            f"{name} cannot be written ({error.strerror}); the grade is kept in the results",
            hint="see who may write it",
        ) from None
