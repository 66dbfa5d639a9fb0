"""edison dataset generate, adversarial, coverage and fill: cases that models write."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import click

from edison_ci import utc
from edison_ci._dataclass import dataclass
from edison_ci.cli import lookup, sessions
from edison_ci.cli.options import CliState, EdisonCommand, takes
from edison_ci.cli.terminal import BAD, GOOD, ODD, StyledText, Terminal
from edison_ci.config.case_facts import SIZES
from edison_ci.errors import ConfigError, UsageError
from edison_ci.features.assist import (
    case_replies,
    draft_trials,
    generated_cases,
    generation,
    writing_session,
)
from edison_ci.features.assist.case_slots import (
    ATTACK_COUNTS,
    ATTACKS,
    COUNTS,
    DIVERSITIES,
    TYPES,
    CaseOrder,
    attack_slots,
    gap_slots,
    weakest_parts,
)
from edison_ci.numeric import counted, percent
from edison_ci.results import coverage as result_coverage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from edison_ci.config.load import Experiment, Project
    from edison_ci.features.assist.case_replies import CaseForm
    from edison_ci.features.assist.generation import Generated, GeneratedCase, Writers
    from edison_ci.features.assist.writing_session import WritingSession
    from edison_ci.records import Case
    from edison_ci.results.case_likeness import KnownCases
    from edison_ci.results.coverage import Coverage, DimensionCoverage

_LANGUAGE = re.compile(r"[a-z]{2,3}\Z")
_SHARE = re.compile(r"([1-5])(?::(\d{1,3}))?\Z")
_MOST_VALUES, _LONGEST_VALUE = 50, 100
_BAR = 20
_NAMED = 6
_TAGS = 15
_DIVERSITY = 6
_MOST_FILLED = 500

_SHARED = (
    click.argument("experiment", required=False),
    click.option(
        "--by", "writers", multiple=True, metavar="MODEL",
        help="Model that writes; repeatable; default: defaults.assistant.",
    ),
    click.option(
        "--verify-by", metavar="MODEL", help="Second model that checks the expected answers."
    ),
    click.option(
        "--set", "values", multiple=True, metavar="NAME=VALUE",
        help="Value of an input that all cases share; repeatable.",
    ),
    click.option("--dataset", "path", metavar="FILE", help="Dataset file (.jsonl) to add to."),
    click.option(
        "--seed", type=click.IntRange(0, 2**31), metavar="N",
        help="Another seed writes other cases; default: by what the dataset has.",
    ),
    sessions.budget,
    click.option("--yes", is_flag=True, help="Add the cases without asking."),
)  # fmt: skip


def writing_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the experiment, and the options of commands that have cases written."""
    for option in reversed(_SHARED):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class WritingOptions:
    """The options of commands that have cases written."""

    experiment: str | None
    writers: tuple[str, ...]
    verify_by: str | None
    values: tuple[str, ...]
    path: str | None
    seed: int | None
    budget: float | None
    yes: bool


@dataclass(frozen=True, slots=True)
class GenerateRequest(WritingOptions):
    """The cases to write, and their shares."""

    hints: str
    count: int
    diversity: int
    languages: tuple[str, ...]
    lengths: tuple[str, ...]
    topics: tuple[str, ...]
    types: tuple[str, ...]
    shares: tuple[str, ...]


@click.command(cls=EdisonCommand)
@click.option("--hints", default="", metavar="TEXT", help="What the cases are about.")
@click.option(
    "--count", type=click.IntRange(*COUNTS), default=20, show_default=True, metavar="N",
    help="Number of cases, 10 to 500.",
)  # fmt: skip
@click.option(
    "--diversity", type=click.IntRange(*DIVERSITIES), default=5, show_default=True, metavar="N",
    help="How far apart the cases are, 1 to 10.",
)  # fmt: skip
@click.option(
    "--language", "languages", multiple=True, metavar="CODE",
    help="Language such as en or de; repeatable.",
)  # fmt: skip
@click.option(
    "--length", "lengths", multiple=True, type=click.Choice(SIZES),
    help="Length of the inputs: XS to 10 words, S 50, M 200, L 1,000, else XL.",
)  # fmt: skip
@click.option("--topic", "topics", multiple=True, metavar="TEXT", help="Topic; repeatable.")
@click.option(
    "--type", "types", multiple=True, type=click.Choice([*TYPES]), metavar="TYPE",
    help="Type such as reasoning or code; repeatable. An unknown one lists all.",
)  # fmt: skip
@click.option(
    "--difficulty", "shares", multiple=True, metavar="N[:SHARE]",
    help="Difficulty from 1 to 5 and its share, such as 3:60; repeatable.",
)  # fmt: skip
@writing_options
@click.pass_obj
@takes(GenerateRequest)
def generate(state: CliState, request: GenerateRequest) -> None:
    """Have models write cases for an experiment, for you to accept.

    Each case gets a difficulty, and a topic, type, language and length if some are named; at least
    one in ten is an edge case. Rows that do not fit the prompt, or repeat another case, are left
    out and asked for again; what is still missing then is said. The cases go into a dataset of
    kind synthetic, each with the model that wrote it. What they expect counts as unverified until a
    second model (--verify-by) or a person agrees. Replies are stored: after Ctrl-C the same command
    continues.

    Examples:
      edison dataset generate --hints "late parcels and refunds" --count 40
      edison dataset generate --language de --language en --length S --yes
      edison dataset generate --topic billing --type reasoning --difficulty 4:70
      edison dataset generate --by small --by large --verify-by judge
    """
    session = writing_session.WritingSession.open(state, request, "dataset generate", "synthetic")
    hints = request.hints.strip() or (session.experiment.file.objective or "")[:1_000]
    order = CaseOrder(
        request.count,
        hints,
        session.seed,
        request.diversity,
        _values(request.languages, "--language"),
        tuple(dict.fromkeys(request.lengths)),
        _values(request.topics, "--topic"),
        tuple(dict.fromkeys(request.types)),
        _difficulties(request.shares),
    )
    order.check()
    form = case_replies.form_of(
        session.experiment,
        session.cases,
        session.fixed,
        languages=order.languages,
        lengths=order.lengths,
    )
    writers = session.writers(form, order.hints, order.diversity)
    generated_cases.CaseDialog(
        session, writers, order.slots(), session.known(form, order.diversity)
    ).settle()


def _values(texts: Sequence[str], option: str) -> tuple[str, ...]:
    values = tuple(dict.fromkeys(text.strip() for text in texts))
    if len(values) > _MOST_VALUES:
        raise UsageError(f"{len(values)} times {option}; at most {_MOST_VALUES}")
    for text in values:
        if option == "--language" and not _LANGUAGE.match(text):
            raise UsageError(
                f"{text[:20]!r} is not the code of a language", hint="write one such as en or de"
            )
        if not 1 <= len(text) <= _LONGEST_VALUE:
            raise UsageError(f"{option} has {len(text)} characters; 1 to {_LONGEST_VALUE} fit")
    return values


def _difficulties(shares: Sequence[str]) -> dict[int, float]:
    weights: dict[int, float] = {}
    for text in shares:
        match = _SHARE.match(text)
        if match is None:
            raise UsageError(
                f"{text[:20]!r} is not a difficulty with its share", hint="write one such as 3:60"
            )
        weights[int(match[1])] = float(match[2] or 1)
    if not any(weights.values()):
        return dict.fromkeys(range(1, 6), 1.0)
    return {level: share for level, share in weights.items() if share}


_LISTED = 5


@dataclass(frozen=True, slots=True)
class AdversarialRequest(WritingOptions):
    """The attacks to write, and what to keep."""

    run_id: str | None
    count: int
    attacks: tuple[str, ...]
    keep: str


@click.command(cls=EdisonCommand)
@click.option("--run", "run_id", metavar="RUN", help="Run whose weaknesses count; default: last.")
@click.option(
    "--count", type=click.IntRange(*ATTACK_COUNTS), default=20, show_default=True, metavar="N",
    help="Number of cases, 5 to 200.",
)  # fmt: skip
@click.option(
    "--attack", "attacks", multiple=True, type=click.Choice([*ATTACKS]), metavar="ATTACK",
    help="weakness, injection, jailbreak, leak, language or boundary.",
)  # fmt: skip
@click.option(
    "--keep", type=click.Choice(["all", "failing"]), default="all", show_default=True,
    help="Keep only cases on which the prompt fails now.",
)  # fmt: skip
@writing_options
@click.pass_obj
@takes(AdversarialRequest)
def adversarial(state: CliState, request: AdversarialRequest) -> None:
    """Have models write cases that the prompt is likely to fail on.

    They aim at the weakest criteria, checks and slices of the last run, at injections, jailbreaks,
    leaks and languages; boundary values of each input need no model. With --keep failing each case
    is answered and graded, and kept only if the answer fails, with the reason. The cases go into a
    dataset of kind adversarial, each with what wrote it and why.

    Examples:
      edison dataset adversarial
      edison dataset adversarial --attack injection --attack leak --count 10
      edison dataset adversarial --keep failing --budget 1 --yes
    """
    session = writing_session.WritingSession.open(
        state, request, "dataset adversarial", "adversarial"
    )
    attacks = [*dict.fromkeys(request.attacks)] or [*ATTACKS]
    needed = "weakness" in request.attacks or bool(request.run_id)
    weak = weakest_parts(session.project, session.experiment, request.run_id, needed=needed)
    form = case_replies.form_of(session.experiment, session.cases, session.fixed)
    present = session.known(form, _DIVERSITY)
    share = request.count // len(attacks) or 1
    ready = _at_boundaries(session, form, present, share) if "boundary" in attacks else []
    slots = attack_slots(request.count - len(ready), attacks, weak, session.seed)
    if weak and any(slot.aim for slot in slots) and not session.terminal.json:
        words = ", ".join(f"{part.words} ({percent(part.score)})" for part in weak)
        session.terminal.note(f"weakest: {words}")
    brief = "\n".join(f"weak: {part.words}, score {percent(part.score)}" for part in weak)
    writers = replace(
        session.writers(form, brief or "attacks", _DIVERSITY),
        instructions="attacks",
        why=True,
    )
    sift = partial(_keep_failing, session, writers) if request.keep == "failing" else None
    generated_cases.CaseDialog(session, writers, slots, present, tuple(ready), sift=sift).settle()


def _at_boundaries(
    session: WritingSession, form: CaseForm, present: KnownCases, count: int
) -> list[GeneratedCase]:
    """Return a sample of cases with values at the limits of each input, which need no model."""
    if not session.cases:
        return []
    at = utc.timestamp(session.context.now())
    cases = [
        case
        for case in generation.boundary_cases(form, session.cases[0], session.seed, at)
        if not present.has(case.written.inputs)
    ]
    return Random(session.seed).sample(cases, min(count, len(cases)))


def _keep_failing(session: WritingSession, writers: Writers, result: Generated) -> dict[str, Any]:
    """Answer and grade each case; leave out those that do not fail."""
    before = len(result.cases)
    if not session.terminal.json:
        session.terminal.note(f"to see which of {counted(before, 'case')} fail, without judges:")
    tasks = draft_trials.tasks_of(
        session.experiment, [case.case("adversarial") for case in result.cases]
    )
    sessions.confirm_calls(
        session.terminal, session.project, draft_trials.calls_of(tasks), yes=session.options.yes
    )
    attempts = draft_trials.try_cases(
        session.project, session.experiment, tasks, session.context, writers.left(result)
    )
    result.cost_microusd += attempts.cost_microusd
    reasons = attempts.failing
    passing = [case for case in result.cases if case.id not in reasons]
    ungraded = sum(case.id in attempts.unknown for case in passing)
    left_out = {
        "on which the prompt does not fail": len(passing) - ungraded,
        "without a grade": ungraded,
    }
    result.refused.update({why: n for why, n in left_out.items() if n})
    result.cases = [
        case._replace(written=case.written._replace(why=reasons[case.id]))
        for case in result.cases
        if case.id in reasons
    ]
    result.sifted = before - len(result.cases)
    problems = attempts.problems[:_LISTED]
    if not session.terminal.json:
        for reason in problems:
            session.terminal.note(StyledText("no answer: "), reason)
    return {"answered": before, "failing": len(result.cases), "no_answer": problems}


@click.command(cls=EdisonCommand)
@click.argument("experiment", required=False)
@click.pass_obj
def coverage(state: CliState, experiment: str | None) -> None:
    """Show which tags, lengths, languages and difficulties the cases cover.

    A value is covered by at least 3 cases. Without `coverage` in the experiment, the values are the
    tags, entities and languages that occur, the lengths XS to L, the difficulties 1 to 5, and clear
    and ambiguous inputs. The map shows the cases of each tag by difficulty.

    Examples:
      edison dataset coverage
      edison dataset coverage support-reply --json
    """
    terminal, project = Terminal(state), lookup.open_project(state, experiment)
    experiments = (
        [project.experiment(experiment)] if experiment else [*project.experiments.values()]
    )
    by_experiment = {
        chosen.id: result_coverage.coverage_of(_cases(project, chosen), chosen.file.coverage)
        for chosen in experiments
    }
    if terminal.json:
        documents = [{"experiment": id_, **_json(part)} for id_, part in by_experiment.items()]
        terminal.document({"experiments": documents})
        return
    for index, (experiment_id, part) in enumerate(by_experiment.items()):
        if index:
            terminal.result("")
        share = "" if part.share is None else f", {percent(part.share)} of the values covered"
        cases = counted(part.cases, "case")
        terminal.result(StyledText(experiment_id, bold=True), f"  {cases}{share}")
        _show_coverage(terminal, part)
        _show_map(terminal, part)


def _cases(project: Project, experiment: Experiment) -> Iterator[Case]:
    if not experiment.file.data:
        return
    feed = project.cases(experiment)
    yield from feed
    if feed.problems:
        raise ConfigError(feed.problems)


def _json(coverage: Coverage) -> dict[str, Any]:
    """Return it as JSON."""
    return {
        "cases": coverage.cases,
        "at_least": coverage.at_least,
        "share": coverage.share,
        "dimensions": {
            dimension.name: {
                "share": dimension.share,
                "cases": dict(dimension.counts),
                "missing": dimension.missing,
            }
            for dimension in coverage.dimensions
        },
        "note": coverage.languages_note,
    }


def _show_coverage(terminal: Terminal, coverage: Coverage) -> None:
    """Print the share of covered values of each dimension, and what is missing."""
    wide = max((len(dimension.name) for dimension in coverage.dimensions), default=0)
    for dimension in coverage.dimensions:
        _show_dimension(terminal, dimension, wide)
    if coverage.languages_note:
        terminal.note(coverage.languages_note)


def _show_dimension(terminal: Terminal, dimension: DimensionCoverage, wide: int) -> None:
    share = dimension.share or 0.0
    full = round(_BAR * share)
    color = GOOD if not dimension.missing else BAD if share < 0.5 else ODD
    lacking = sorted(dimension.missing, key=lambda value: (dimension.counts[value], value))
    words = [f"{value} ({dimension.counts[value]})" for value in lacking[:_NAMED]]
    more = f" and {len(lacking) - _NAMED:,} more" if len(lacking) > _NAMED else ""
    terminal.result(
        f"  {dimension.name:<{wide}}  ",
        StyledText("#" * full, color),
        "." * (_BAR - full),
        f"  {dimension.covered:>3,} of {len(dimension.counts):,}",
        f"  few: {', '.join(words)}{more}" if words else "",
    )


def _show_map(terminal: Terminal, coverage: Coverage) -> None:
    """Print the cases by tag and difficulty, in colors where there are."""
    rows = coverage.rows(_TAGS)
    if not rows:
        return
    wide = max(max(len(tag) for tag, _ in rows), len("tag"))
    terminal.result("")
    terminal.result(f"  {'tag':<{wide}}  difficulty 1     2     3     4     5")
    for tag, counts in rows:
        cells = [
            StyledText(f"{n:>6,}", GOOD if n >= coverage.at_least else ODD if n else BAD)
            for n in counts
        ]
        terminal.result(f"  {tag:<{wide}}        ", *cells)
    left = len(coverage.found["tags"]) - len(rows)
    if left > 0:
        terminal.note(f"  {counted(left, 'further tag')}: see --json")


@dataclass(frozen=True, slots=True)
class FillRequest(WritingOptions):
    """How many cases are written at most."""

    most: int


@click.command(cls=EdisonCommand)
@click.option(
    "--most", type=click.IntRange(1, _MOST_FILLED), default=50, show_default=True, metavar="N",
    help="Largest number of cases to write.",
)  # fmt: skip
@writing_options
@click.pass_obj
@takes(FillRequest)
def fill(state: CliState, request: FillRequest) -> None:
    """Have models write cases for what the dataset does not cover.

    One case fills several gaps at once: a rare tag in a missing language, of a missing length. The
    coverage is shown before and after; after is what the new cases really cover.

    Examples:
      edison dataset fill
      edison dataset fill support-reply --most 20 --yes
    """
    session = writing_session.WritingSession.open(state, request, "dataset fill", "synthetic")
    terminal, experiment = session.terminal, session.experiment
    targets = experiment.file.coverage
    before = result_coverage.coverage_of(session.cases, targets)
    slots = gap_slots(before, request.most)
    if not slots:
        if terminal.json:
            terminal.document({"before": _json(before), "added": 0, "cases": []})
        else:
            terminal.result("everything is covered; nothing to fill")
        return
    if not terminal.json:
        terminal.note("before:")
        _show_coverage(terminal, before)
    form = case_replies.form_of(
        experiment,
        session.cases,
        session.fixed,
        languages=[slot.language for slot in slots if slot.language],
        lengths=[slot.length for slot in slots if slot.length],
    )

    def report(result: Generated) -> dict[str, Any]:
        new = [case.case("synthetic") for case in result.cases]
        after = result_coverage.coverage_of([*session.cases, *new], targets, like=before)
        if not terminal.json:
            terminal.note("after:")
            _show_coverage(terminal, after)
        return {"before": _json(before), "after": _json(after)}

    writers = session.writers(form, experiment.file.objective, _DIVERSITY)
    present = session.known(form, _DIVERSITY)
    generated_cases.CaseDialog(session, writers, slots, present, report=report).settle()
