"""Annotations of changed lines, and GitHub Actions workflow commands.

GitHub shows ten annotations of a level per step and drops the others silently: at most nine are
written, the worst first, and one that counts the rest. Untrusted text can never add a command or an
output.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from edison_ci.errors import UsageError
from edison_ci.numeric import counted, score
from edison_ci.records import ACTION_WORDS, Move, RunStatus, Verdict
from edison_ci.results.run_sentences import suite_words
from edison_ci.sanitize import lines, without_commands, workflow_command

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from edison_ci.results.report import Report
    from edison_ci.results.run_result import RunResult


_MOST_LINES = 20_000
"""Longer files are not compared line by line; their changes have no lines."""


class Lines(NamedTuple):
    """A range of lines, counted from 1, both ends included."""

    first: int
    last: int


Changed: TypeAlias = "Mapping[str, Sequence[Lines]]"
"""Changed lines, by path in the project."""


class FileLines(NamedTuple):
    """A file and lines at which a result is shown."""

    path: str
    lines: Lines | None = None
    """None if no line is known; the path may be empty as well."""


def changed_lines(before: str, after: str) -> tuple[Lines, ...]:
    """Return the lines of a text that differ from before; a removal marks the line after it."""
    old, new = before.splitlines(), after.splitlines()
    if not new or max(len(old), len(new)) > _MOST_LINES:
        return ()
    same = _common_prefix(old, new)
    rest = min(len(old), len(new)) - same
    end = _common_prefix(old[::-1][:rest], new[::-1][:rest])
    # Popular lines are not anchors (autojunk): with them a hostile file would take minutes.
    matcher = difflib.SequenceMatcher(None, old[same : len(old) - end], new[same : len(new) - end])
    ranges = []
    for tag, _, _, first, last in matcher.get_opcodes():
        if tag != "equal":
            begin = min(same + first + 1, len(new))
            ranges.append(Lines(begin, max(same + last, begin)))
    return tuple(ranges)


def _common_prefix(old: Sequence[str], new: Sequence[str]) -> int:
    """Return the number of equal lines at the beginning."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(old), len(new)))


class Spots:
    """Hands out the changed lines at which results are shown, so that not all are on one line."""

    def __init__(self, changed: Changed) -> None:
        self._changed = {path: _places(hunks) for path, hunks in changed.items() if hunks}
        self._used: Counter[str] = Counter()

    def next(self, view: RunResult, prompt: str | None = None) -> FileLines:
        """Return where the next result of a prompt, or of all prompts, is shown.

        That is the next change in the prompt, else in the experiment or in models.yaml; after the
        last change the first is used again. If nothing changed, the prompt's file without a line.
        """
        files = view.files
        own = [path for name, path in files.prompts.items() if prompt in (name, None)]
        return self._first([path for path in (*own, files.experiment, files.models) if path])

    def in_experiment(self, view: RunResult) -> FileLines:
        """Return where the next change of the eval suite is shown."""
        return self._first([view.files.experiment])

    def _first(self, paths: Sequence[str]) -> FileLines:
        for path in paths:
            if path in self._changed:
                places = self._changed[path]
                self._used[path] += 1
                return FileLines(path, places[(self._used[path] - 1) % len(places)])
        return FileLines(paths[0]) if paths else FileLines("")


def _places(hunks: Sequence[Lines]) -> list[Lines]:
    """Return each change of a file, or the lines of the only one."""
    if len(hunks) > 1:
        return [*hunks]
    return [Lines(number, number) for number in range(hunks[0].first, hunks[0].last + 1)]


_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_TOKEN = re.compile(r"[A-Za-z0-9_]{32,100}")


def stop_commands(text: str, token: str) -> str:
    """Return text between `stop-commands` lines, so that the runner ignores commands in it.

    The token must be new and random: a text that knows it could end the block.
    """
    if not _TOKEN.fullmatch(token) or token in text:
        raise UsageError("the token is invalid or part of the text", hint="generate another one")
    # For runners that do not know stop-commands, commands in the text are broken up as well.
    body = without_commands(lines(text)).rstrip("\n")
    return f"::stop-commands::{token}\n{body}\n::{token}::"


def outputs(values: Mapping[str, str], delimiter: str) -> str:
    """Return the text for GITHUB_OUTPUT; the delimiter must be new and random."""
    if not _TOKEN.fullmatch(delimiter):
        raise UsageError("the delimiter is too easy to guess", hint="use 32 random hex digits")
    pieces = []
    for name, value in values.items():
        if not _NAME.fullmatch(name) or delimiter in value:
            raise UsageError(f"the output {name!r} cannot be written", hint="use another delimiter")
        pieces.append(f"{name}<<{delimiter}\n{value}\n{delimiter}\n")
    return "".join(pieces)


Level: TypeAlias = Literal["error", "warning", "notice"]
_LEVELS: tuple[Level, ...] = ("error", "warning", "notice")
MOST = 9
_NAMED = 5


class Annotation(NamedTuple):
    """One annotation of a line."""

    level: Level
    title: str
    message: str
    spot: FileLines = FileLines("")

    def as_json(self) -> dict[str, Any]:
        """Return the annotation with the property names of GitHub."""
        lines = self.spot.lines
        return {
            "level": self.level,
            "title": self.title,
            "message": self.message,
            "file": self.spot.path or None,
            "line": lines.first if lines else None,
            "end_line": lines.last if lines else None,
        }


def annotations_of(report: Report, changed: Changed) -> list[Annotation]:
    """Return the annotations of a report, the worst first."""
    annotations = [Annotation("error", "not measured", report.failure)] if report.failure else []
    if report.undecided:
        annotations.append(Annotation("notice", "not evaluated", report.undecided))
    annotations += [
        Annotation("warning", "no longer measured", sentence) for sentence in report.dropped
    ]
    spots = Spots(changed)
    for view in report.runs:
        annotations += _run_annotations(view, spots)
    return sorted(annotations, key=lambda annotation: _LEVELS.index(annotation.level))


def annotation_commands(annotations: Sequence[Annotation], folder: str = "") -> list[str]:
    """Return annotations as workflow commands; paths start in `folder` of the checkout."""
    commands = [_command(annotation, folder) for annotation in annotations[:MOST]]
    if len(annotations) > MOST:
        rest = annotations[MOST:]
        message = f"{len(rest):,} more in the job summary"
        commands.append(workflow_command(rest[0].level, message, {"title": "edison"}))
    return commands


def _command(annotation: Annotation, folder: str) -> str:
    lines = annotation.spot.lines
    properties = {
        "file": folder + annotation.spot.path if annotation.spot.path else None,
        "line": lines.first if lines else None,
        "endLine": lines.last if lines else None,
        "title": f"edison: {annotation.title}",
    }
    return workflow_command(annotation.level, annotation.message, properties)


def _run_annotations(view: RunResult, spots: Spots) -> Iterator[Annotation]:
    name = view.run.experiment + "".join(f", {label}" for label in view.labels)
    on = f"{name}{suite_words(view)}"
    yield from _gates(view, spots, on)
    if view.notes:
        title = f"{on}: passes, with a regression"
        yield Annotation("warning", title, " ".join(view.notes), spots.next(view))
    if view.run.status != RunStatus.COMPLETED and view.missing:
        level: Level = "error" if view.run.verdict == Verdict.ERROR else "warning"
        yield Annotation(level, on, view.missing[0], spots.next(view))
    if view.eval_suite:
        places = ", ".join(change.place for change in view.eval_suite[:_NAMED])
        more = ", ..." if len(view.eval_suite) > _NAMED else ""
        spot = spots.in_experiment(view)
        yield Annotation("warning", f"{on}: eval suite changed", f"{places}{more}", spot)
    if view.on == "head":
        yield from _broken(view, spots, name)
        yield from _findings(view, spots, name)


def _gates(view: RunResult, spots: Spots, on: str) -> Iterator[Annotation]:
    for row in view.gates:
        if row.verdict not in (Verdict.FAIL, Verdict.INCONCLUSIVE):
            continue
        insists = row.verdict == Verdict.FAIL or row.if_unclear == "fail"
        about = f"{on}: {row.metric} {row.verdict}"
        about += f", {row.prompt} with {row.model}" if row.model else ""
        level: Level = "error" if insists else "notice"
        yield Annotation(level, about, row.sentence, spots.next(view, row.prompt))


def _broken(view: RunResult, spots: Spots, name: str) -> Iterator[Annotation]:
    for change in view.changes:
        broken = change.comparison.moved[Move.NEWLY_FAILING]
        if not broken:
            continue
        listed = ", ".join(f"{m.case} ({score(m.a)} to {score(m.b)})" for m in broken[:_NAMED])
        more = ", ..." if len(broken) > _NAMED else ""
        variant = f"{change.prompt} with {change.model}"
        title = f"{name}: {counted(len(broken), 'case')} newly failing, {variant}"
        yield Annotation("warning", title, f"{listed}{more}", spots.next(view, change.prompt))


def _findings(view: RunResult, spots: Spots, name: str) -> Iterator[Annotation]:
    def key(finding: Any) -> tuple[str, str, str]:
        return (finding.action, finding.kind, finding.prompt)

    for (action, kind, prompt), group in groupby(sorted(view.findings, key=key), key=key):
        cases = list(dict.fromkeys(finding.case for finding in group))
        level: Level = "warning" if action == "block" else "notice"
        title = f"{name}: {kind} {ACTION_WORDS[action]}, {prompt}"
        more = ", ..." if len(cases) > _NAMED else ""
        message = f"{counted(len(cases), 'case')}: {', '.join(cases[:_NAMED])}{more}"
        yield Annotation(level, title, message, spots.next(view, prompt))
