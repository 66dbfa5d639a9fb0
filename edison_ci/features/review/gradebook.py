"""Grades by people: stored with their audit, and appended to the labels file of a rubric.

A grade is stored in one transaction with its audit row. Then, if the rubric names a labels file, it
is appended there in one write, on a line of its own.
"""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edison_ci._dataclass import dataclass
from edison_ci.access.site import Role
from edison_ci.documents.secrets import redacted
from edison_ci.errors import UsageError
from edison_ci.store.manual_grades import write_grade

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edison_ci.access.site import Actor, Site
    from edison_ci.config.calibration import Label, ScaleName
    from edison_ci.store.manual_grades import ManualGrade


@dataclass(frozen=True, slots=True)
class HumanGrade:
    """The grade of an answer by a person."""

    scale: ScaleName | None = None
    """None, like `grade`, to set or remove a flag only."""
    grade: float | None = None
    note: str = ""
    flag: bool = False
    criteria: Mapping[str, float] = field(default_factory=dict)
    """On the scales of the rubric."""


@dataclass(frozen=True, slots=True)
class GradeBook:
    """Stores the grades of one person."""

    site: Site
    actor: Actor
    labels: str | None
    """Path of the labels file; None if the rubric names none."""

    @classmethod
    def of(cls, site: Site, labels: str | None) -> GradeBook:
        """Return the grade book of the actor; raises RoleError if they may not grade."""
        return cls(site, site.require(Role.REVIEWER, "grade"), labels)

    def enter(
        self, grade: ManualGrade, label: Label | None, *, run_id: str, before: Any = None
    ) -> None:
        """Store a grade; one that is only a flag has no label."""
        after = {"score": grade.score, "scale": grade.scale, "flagged": grade.flagged}
        entry = self.site.entry(
            self.actor, "grade", f"cell {grade.cell_id[:12]}", before=before, after=after
        )
        entry = dataclasses.replace(entry, run_id=run_id)
        write_grade(self.site.results, grade, entry)
        if label is not None and self.labels is not None:
            append_line(self.site.root, self.labels, label_line(label))


def label_line(label: Label) -> str:
    """Return a label as a line of its file, without strings that look like secrets."""
    told = label.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    if "output" in told and redacted(told["output"]) != told["output"]:
        told["answer"] = label.key[1]
        del told["output"]
    if "note" in told:
        told["note"] = redacted(told["note"])
    if float(told["grade"]).is_integer():
        told["grade"] = int(told["grade"])
    text = json.dumps(told, ensure_ascii=False)
    # Invisible characters are escaped; letters of all scripts stay readable.
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def append_line(root: Path, name: str, line: str) -> None:
    """Append a line to a file in the project, after a line break if one is missing."""
    path = root / name
    real = Path(os.path.realpath(path))
    if not real.is_relative_to(os.path.realpath(root)):
        raise UsageError(
            f"{name} is a link to outside of the project; the grade is stored in the results only",
            hint="replace the link by a file",
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
            f"{name} cannot be written ({error.strerror}); the grade is stored in the results only",
            hint="check the permissions of the file",
        ) from None
