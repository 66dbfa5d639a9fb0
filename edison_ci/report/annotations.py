"""Annotations of a pull request, beside the lines that it changed.

GitHub shows ten annotations of a level in a step and drops the others silently: at most nine are
written, the worst first, and one that says how many more there are.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from edison_ci.formatting import counted, score
from edison_ci.report.changed_lines import Spot, spot_of
from edison_ci.report.workflow import command

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from edison_ci.report.changed_lines import Changed
    from edison_ci.results.report import Report
    from edison_ci.results.run_result import RunResult

Level: TypeAlias = Literal["error", "warning", "notice"]
_LEVELS: tuple[Level, ...] = ("error", "warning", "notice")
MOST = 9
_NAMED = 5


class Annotation(NamedTuple):
    """One remark at one place."""

    level: Level
    title: str
    message: str
    spot: Spot = Spot("")

    def as_json(self) -> dict[str, Any]:
        """Return it with the names that GitHub has for its parts."""
        lines = self.spot.lines
        return {
            "level": self.level,
            "title": self.title,
            "message": self.message,
            "file": self.spot.path or None,
            "line": lines.first if lines else None,
            "end_line": lines.last if lines else None,
        }


def annotated(report: Report, changed: Changed) -> list[Annotation]:
    """Return what is to be shown beside lines, the worst first."""
    found = [Annotation("error", "not measured", report.failure)] if report.failure else []
    if report.undecided:
        found.append(Annotation("notice", "not evaluated", report.undecided))
    found += [Annotation("warning", "no longer measured", each) for each in report.dropped]
    for view in report.runs:
        found += _of(view, changed)
    return sorted(found, key=lambda one: _LEVELS.index(one.level))


def annotation_commands(found: Sequence[Annotation], folder: str = "") -> list[str]:
    """Return annotations as workflow commands; paths start in `folder` of the checkout."""
    said = [_command(one, folder) for one in found[:MOST]]
    if len(found) > MOST:
        rest = found[MOST:]
        told = f"{len(rest):,} more in the job summary"
        said.append(command(rest[0].level, told, {"title": "edison"}))
    return said


def _command(one: Annotation, folder: str) -> str:
    lines = one.spot.lines
    properties = {
        "file": folder + one.spot.path if one.spot.path else None,
        "line": lines.first if lines else None,
        "endLine": lines.last if lines else None,
        "title": f"edison: {one.title}",
    }
    return command(one.level, one.message, properties)


def _of(view: RunResult, changed: Changed) -> Iterator[Annotation]:
    name = view.run.experiment + "".join(f", {label}" for label in view.labels)
    on = f"{name}, on the base's material" if view.on == "base" else name
    yield from _gates(view, changed, on)
    if view.run.status != "COMPLETED" and view.missing:
        level: Level = "error" if view.run.verdict == "error" else "warning"
        yield Annotation(level, on, view.missing[0], spot_of(view, None, changed))
    if view.material:
        told = ", ".join(change.place for change in view.material[:_NAMED])
        more = ", ..." if len(view.material) > _NAMED else ""
        spot = Spot(view.files.experiment)
        if changed.get(view.files.experiment):
            spot = Spot(view.files.experiment, changed[view.files.experiment][0])
        yield Annotation("warning", f"{on}: evaluation material changed", f"{told}{more}", spot)
    if view.on == "head":
        yield from _broken(view, changed, name)
        yield from _found(view, changed, name)


def _gates(view: RunResult, changed: Changed, on: str) -> Iterator[Annotation]:
    for row in view.gates:
        if row.verdict not in ("fail", "inconclusive"):
            continue
        insists = row.verdict == "fail" or row.if_unclear == "fail"
        about = f"{on}: {row.metric} {row.verdict}"
        about += f", {row.prompt} with {row.model}" if row.model else ""
        level: Level = "error" if insists else "notice"
        yield Annotation(level, about, row.sentence, spot_of(view, row.prompt, changed))


def _broken(view: RunResult, changed: Changed, name: str) -> Iterator[Annotation]:
    for one in view.changes:
        broken = one.standing.broken
        if not broken:
            continue
        listed = ", ".join(f"{m.case} ({score(m.a)} to {score(m.b)})" for m in broken[:_NAMED])
        more = ", ..." if len(broken) > _NAMED else ""
        title = f"{name}: {counted(len(broken), 'case')} broken, {one.prompt} with {one.model}"
        yield Annotation("warning", title, f"{listed}{more}", spot_of(view, one.prompt, changed))


def _found(view: RunResult, changed: Changed, name: str) -> Iterator[Annotation]:
    def alike(finding: Any) -> tuple[str, str, str]:
        return (finding.action, finding.kind, finding.prompt)

    for (action, kind, prompt), group in groupby(sorted(view.findings, key=alike), key=alike):
        cases = list(dict.fromkeys(finding.case for finding in group))
        level: Level = "warning" if action == "block" else "notice"
        title = f"{name}: {kind} {'blocked' if action == 'block' else 'flagged'}, {prompt}"
        more = ", ..." if len(cases) > _NAMED else ""
        told = f"{counted(len(cases), 'case')}: {', '.join(cases[:_NAMED])}{more}"
        yield Annotation(level, title, told, spot_of(view, prompt, changed))
