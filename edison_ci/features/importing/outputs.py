"""edison import outputs: answers that were produced elsewhere, read from a file and graded here.

Every row names the case that it answers. All rows are checked before the first is stored: a row for
an unknown case or model, a second answer to the same cell and a wrong value are problems with their
line. What a check or gate needs and a row lacks is a problem too, as no number is made up.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from edison_ci import utc
from edison_ci._dataclass import dataclass
from edison_ci.access import own_results
from edison_ci.access import site as sites
from edison_ci.api import evaluation
from edison_ci.cli import lookup, run, sessions
from edison_ci.cli.options import CliState, EdisonCommand, takes
from edison_ci.cli.terminal import Terminal
from edison_ci.config.cases import STATIC
from edison_ci.config.experiment import DataLimits, DatasetEntry
from edison_ci.config.models import MAX_CONFIGURATIONS
from edison_ci.config.rows import RowReader
from edison_ci.documents.files import WorkingTree, file_digest
from edison_ci.errors import ConfigError, Location, Problem, UsageError
from edison_ci.execute.existing_answers import OutputFile
from edison_ci.numeric import counted
from edison_ci.records import Completion, FinishReason, Json
from edison_ci.shape import short
from edison_ci.spelling import did_you_mean
from edison_ci.store.answers import Settlement

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from edison_ci.config.load import Experiment, Project
    from edison_ci.documents.files import Tree

SUFFIXES = (".jsonl", ".csv")
MAX_BYTES = 1_000_000_000
MAX_ROWS = 1_000_000
MAX_REPEATS = 100
MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/+-]{0,99}")
"""Names of models that are not in models.yaml; those of vendors have slashes and colons."""
_COLUMN_TYPES = {
    "repeat": "number",
    "usage": "object",
    "tokens_in": "number",
    "tokens_out": "number",
    "latency_ms": "number",
    "cost_usd": "number",
    "tool_calls": "list",
}
_KEYS = ("case", "model", "prompt", "text", "time", "finish_reason", *_COLUMN_TYPES)
_HIGHEST = {"latency_ms": 86_400_000, "cost_usd": 10_000}
_MOST_TOKENS = 1_000_000_000
_NEEDED_BY = {
    "latency": "latency_ms",
    "latency_ms.p95": "latency_ms",
    "cost": "cost_usd",
    "cost_usd.mean": "cost_usd",
    "finish_reason": "finish_reason",
    "tokens.mean": "tokens_out",
}
"""Checks and metrics of gates that need a value, by their name."""
_KNOWN_NAMES = 10_000
"""Number of case ids that are searched for one similar to an unknown one."""


class _BadRowError(Exception):
    def __init__(self, key: str, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.key, self.code, self.message, self.hint = key, code, message, hint


def read_outputs(
    tree: Tree, path: str, project: Project, experiment: Experiment, others: Sequence[str] = ()
) -> OutputFile:
    """Return the answers of a file; raises ConfigError with all its problems.

    `others` names models that the experiment does not have.
    """
    limits = DataLimits(max_rows=MAX_ROWS, max_bytes=MAX_BYTES)
    entry = DatasetEntry.model_construct(path=path, map={}, limits=limits)
    reader = RowReader(tree, entry, _COLUMN_TYPES, [])
    cases = [str(case.id) for case in project.cases(experiment)] if experiment.file.data else []
    rows = _Rows(experiment, frozenset(cases or [STATIC.id]), others)
    answers = OutputFile(path.rpartition("/")[2], file_digest(tree, path))
    lines: dict[tuple[str, str, str, int], int] = {}
    for row in reader:
        try:
            key, settlement = rows.read(row)
            if (first := lines.setdefault(key, reader.line)) != reader.line:
                raise _twice(key, first)
        except _BadRowError as bad:
            where = reader.locate((bad.key,), key=bad.code == "unknown-key")
            reader.report(Problem(where, bad.code, f"row {reader.number}: {bad.message}", bad.hint))
            continue
        answers.answers[key] = settlement
        answers.without_cost += row.get("cost_usd") is None
        answers.without_latency += not settlement.completion.latency_ms
    problems = [*reader.problems, *_whole_file(answers, reader)]
    if problems:
        raise ConfigError(problems)
    return answers


def _whole_file(answers: OutputFile, reader: RowReader) -> Iterator[Problem]:
    where = Location(reader.entry.path)
    if reader.suppressed:
        message = f"{reader.suppressed:,} further problems in this file"
        yield Problem(where, "more", message, "fix the first ones")
    elif not answers.answers and not reader.problems:
        yield Problem(where, "empty", "the file has no answers", "each row is one answer")
    elif len(answers.models) > MAX_CONFIGURATIONS:
        message = f"answers of {len(answers.models)} models; at most {MAX_CONFIGURATIONS}"
        yield Problem(where, "range", message, "split the file by models")


def _twice(key: tuple[str, str, str, int], first: int) -> _BadRowError:
    _, model, case, repeat = key
    message = f"a second answer of {model} to case {short(case)}, the first is in line {first}"
    hint = f"remove one, or number several: repeat: {repeat}, repeat: {repeat + 1}"
    return _BadRowError("case", "duplicate", message, hint)


class _Rows:
    """Reads rows as answers to the cells of an experiment."""

    def __init__(
        self, experiment: Experiment, cases: frozenset[str], others: Sequence[str]
    ) -> None:
        self._cases = cases
        self._names: dict[str, list[str]] = {
            "model": [*(name for name, _, _ in experiment.models), *others],
            "prompt": [prompt.id for prompt in experiment.prompts],
        }
        # With one name on the command line, a file without models has the answers of that one.
        self._default = dict(self._names)
        if len(others) == 1:
            self._default["model"] = list(others)
        used = {check.check: "check" for check in experiment.all_checks()}
        used |= {gate.metric: "gate" for gate in experiment.file.gates}
        self._needed = {_NEEDED_BY[by]: (by, kind) for by, kind in used.items() if by in _NEEDED_BY}

    def read(self, row: dict[str, Any]) -> tuple[tuple[str, str, str, int], Settlement]:
        """Return the cell that a row answers, and its answer; raises _BadRowError."""
        if isinstance(row.get("input"), dict):  # a CSV file has its columns there
            row |= row.pop("input")
        for key in row:
            if key not in _KEYS:
                hint = did_you_mean(key, _KEYS, label="keys") or "remove it"
                raise _BadRowError(key, "unknown-key", f"unknown key {short(key)}", hint)
        prompt, model = self._one_of(row, "prompt"), self._one_of(row, "model")
        repeat = _count(row, "repeat", MAX_REPEATS - 1) or 0
        return (prompt, model, self._case(row), repeat), self._settlement(row)

    def _case(self, row: dict[str, Any]) -> str:
        case = _text(row, "case")
        if not case:
            raise _BadRowError("case", "missing", "case is missing", "name the id of the case")
        if case not in self._cases:
            cases = self._cases if len(self._cases) <= _KNOWN_NAMES else ()
            hint = did_you_mean(case, cases, label="cases") or "see: edison dataset show"
            raise _BadRowError("case", "unknown-case", f"unknown case {short(case)}", hint)
        return case

    def _one_of(self, row: dict[str, Any], what: Literal["model", "prompt"]) -> str:
        name, names = _text(row, what), self._names[what]
        if name in names:
            return str(name)
        if name:
            hint = did_you_mean(name, names, label=f"{what}s of the experiment")
            if what == "model":
                hint += f"; for a model that it does not have, add --model {name[:100]}"
            code = "unknown-model" if what == "model" else "value"
            raise _BadRowError(what, code, f"unknown {what} {short(name)}", hint.lstrip("; "))
        if len(self._default[what]) == 1:
            return self._default[what][0]
        hint = f"name one: {', '.join(names)}"
        raise _BadRowError(what, "missing", f"{what} is missing, and there are several", hint)

    def _settlement(self, row: dict[str, Any]) -> Settlement:
        text = row.get("text")
        if not isinstance(text, str):
            what = "missing" if text is None else "type"
            fault = "text is missing" if text is None else "text is not a text"
            raise _BadRowError("text", what, fault, 'an empty answer is ""')
        tokens_in, tokens_out = _tokens(row)
        latency, cost = _amount(row, "latency_ms"), _amount(row, "cost_usd")
        values = {"latency_ms": latency, "cost_usd": cost, "tokens_out": tokens_out,
                 "finish_reason": _text(row, "finish_reason")}  # fmt: skip
        for name, (by, kind) in self._needed.items():
            if values[name] is None:
                message = f"{name} is missing, and the {kind} {by} of the experiment needs it"
                raise _BadRowError(name, "missing", message, "add it to every row")
        calls = row.get("tool_calls")
        if calls is not None and not isinstance(calls, list):
            message = "tool_calls is not a list"
            raise _BadRowError("tool_calls", "type", message, "write them as OpenAI returns them")
        completion = Completion(
            text,
            _finish_reason(row, calls),
            tokens_in,
            tokens_out,
            # An answer takes some time, so 0 means that it is not known.
            latency_ms=0 if latency is None else max(1, round(latency)),
            tool_calls=calls or None,
        )
        return Settlement(completion, math.ceil((cost or 0) * 1e6), "imported", _time(row))


def _text(row: dict[str, Any], key: str) -> str | None:
    value = row.get(key)
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise _BadRowError(key, "type", f"{key} is not a text", "quote it")
    return value


def _tokens(row: dict[str, Any]) -> tuple[int | None, int | None]:
    usage = row.get("usage")
    if usage is not None:
        if not isinstance(usage, dict) or usage.keys() - {"in", "out"}:
            raise _BadRowError("usage", "type", "usage is not valid", 'write {"in": 12, "out": 34}')
        row = {f"tokens_{name}": tokens for name, tokens in usage.items()} | row
    return _count(row, "tokens_in", _MOST_TOKENS), _count(row, "tokens_out", _MOST_TOKENS)


def _count(row: dict[str, Any], key: str, most: int) -> int | None:
    value = row.get(key)
    if value is None or (type(value) is int and 0 <= value <= most):
        return value
    message = f"{key} is {short(str(value))}; allowed: whole numbers from 0 to {most:,}"
    raise _BadRowError(key, "range", message)


def _amount(row: dict[str, Any], key: str) -> float | None:
    value, most = row.get(key), _HIGHEST[key]
    if value is None or (type(value) in (int, float) and 0 <= value <= most):
        return value
    message = f"{key} is {short(str(value))}; allowed: numbers from 0 to {most:,}"
    raise _BadRowError(key, "range", message)


def _finish_reason(row: dict[str, Any], calls: Json) -> FinishReason:
    reason = _text(row, "finish_reason")
    if reason is None:
        return FinishReason.TOOL_CALLS if calls else FinishReason.STOP
    if reason not in list(FinishReason):
        hint = f"allowed: {', '.join(FinishReason)}"
        raise _BadRowError("finish_reason", "value", f"unknown reason {short(reason)}", hint)
    return FinishReason(reason)


def _time(row: dict[str, Any]) -> str:
    """Return when the answer was given; now if the row does not say."""
    text, now = _text(row, "time"), utc.now()
    if text is None:
        return utc.timestamp(now)
    try:
        time = dt.datetime.fromisoformat(text)
        if time.tzinfo is None or not dt.datetime(2000, 1, 1, tzinfo=dt.UTC) <= time <= now:
            raise ValueError
        return utc.timestamp(time)
    except (ValueError, OverflowError):
        message = f"time is {short(text)}, not a time from 2000 to now"
        raise _BadRowError("time", "date", message, "write 2026-07-31T12:00:00Z") from None


@dataclass(frozen=True, slots=True)
class OutputsRequest:
    """The file, the experiment that grades its answers, and the limits of grading."""

    file: Path
    name: str | None
    """The experiment; the only one if None."""
    others: tuple[str, ...]
    """Models that the experiment does not have."""
    budget: float | None
    allow_code: bool
    yes: bool
    wait: bool


@click.command(cls=EdisonCommand)
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@click.option("--experiment", "name", metavar="NAME", help="Experiment that grades the answers.")
@click.option(
    "--model",
    "others",
    multiple=True,
    metavar="NAME",
    help="Accept answers of a model that the experiment does not have; repeatable.",
)
@sessions.cost_options
@click.option("--wait", is_flag=True, help="Wait until another run of the experiment has ended.")
@click.pass_obj
@takes(OutputsRequest)
def outputs(state: CliState, request: OutputsRequest) -> None:
    """Grade answers that were produced elsewhere.

    FILE is JSONL, or CSV with a header: case (an id of the dataset), text, and optionally model,
    prompt, repeat, usage ({in, out}) or tokens_in and tokens_out, latency_ms, cost_usd, time,
    finish_reason and tool_calls. The answers become a run: checks, judges and gates of the
    experiment grade them, and no model is asked for an answer. Cases without an answer are skipped.
    Imported answers are never reused by other runs, and never the base of one.

    Examples:
      edison import outputs answers.jsonl
      edison import outputs answers.csv --experiment support-reply --budget 1
      edison import outputs production.jsonl --model our-service --json
    """
    terminal, file = Terminal(state), request.file
    project = lookup.open_project(state, request.name)
    site = sites.Site(project.root, project.file)
    actor = site.require(sites.Role.EDITOR, "import outputs", file.name)
    experiment = _experiment(project, request.name)
    for other in request.others:
        if not MODEL_NAME.fullmatch(other):
            hint = "use letters, digits and . _ : / + -, at most 100"
            raise UsageError(f"{other!r} is not a valid name of a model", hint=hint)
    tree, path = file_to_import(state, file, SUFFIXES)
    answers = read_outputs(tree, path, project, experiment, request.others)
    terminal.note(f"{counted(len(answers.answers), 'answer')} in {file}")
    grading = evaluation.GradingRequest(
        sessions.microusd(request.budget),
        allow_code=request.allow_code,
        wait=request.wait,
        doubts=own_results.recording_doubts(project.root, [state.folder / file]),
    )
    confirmation = sessions.PlanConfirmation(terminal, yes=request.yes)
    factory = sessions.session_factory(state, confirmation)
    ended = evaluation.grade_outputs(project, experiment, answers, grading, factory)
    after = {"run": ended.run_id, **answers.origin()}
    site.record(actor, "import outputs", experiment.id, after=after)
    run.finish(terminal, project, [ended])


def _experiment(project: Project, name: str | None) -> Experiment:
    experiments = evaluation.select_experiments(project, [name] if name else [])
    if len(experiments) != 1:
        names = ", ".join(experiment.id for experiment in experiments) or "none"
        raise UsageError(
            "which experiment grades the answers?", hint=f"add --experiment; there are: {names}"
        )
    return experiments[0]


def file_to_import(
    state: CliState, file: Path, suffixes: tuple[str, ...]
) -> tuple[WorkingTree, str]:
    """Return a file anywhere on this machine as a tree and a path in it; raises UsageError."""
    if file.suffix not in suffixes:
        kinds = " or ".join(suffixes)
        raise UsageError(f"{str(file)!r} is not a {kinds} file", hint=f"give a {kinds} file")
    if not (state.folder / file).is_file():
        raise UsageError(f"{str(file)!r} is not a file", hint="give the file to import")
    real = (state.folder / file).resolve()
    with contextlib.suppress(ValueError):
        return WorkingTree(state.folder), real.relative_to(state.folder.resolve()).as_posix()
    return WorkingTree(real.parent), real.name
