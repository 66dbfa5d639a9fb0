"""edison dataset: cases, what they are made of, and which of them tell nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from edison_ci._dataclass import dataclass
from edison_ci.cli.dataset_health import cases_of, health, meant
from edison_ci.cli.dataset_judge import in_short, judge, question_json, tell_question
from edison_ci.cli.options import EdisonCommand, EdisonGroup, State
from edison_ci.cli.reading import project_at, results_of
from edison_ci.cli.terminal import ODD, Ink, Terminal, counted
from edison_ci.config.facets import LEVELS, NONE, SIZES, content_hash, length_of, level_of, words_in
from edison_ci.records import CaseKind, canonical_json
from edison_ci.results.dataset_health import count, quality_of
from edison_ci.rounding import fixed
from edison_ci.store.questions import scores_of

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Mapping, Sequence

    from edison_ci.config.load import Experiment, Project
    from edison_ci.records import Case, Json
    from edison_ci.results.dataset_health import Counts, JudgedQuestion

_WIDE, _NARROW = 60, 30
_MOST_TAGS = 20


@click.group(cls=EdisonGroup)
def dataset() -> None:
    """Show cases, count them, and look for bad ones.

    Examples:
      edison dataset show support-reply --tag billing
      edison dataset stats
      edison dataset health
      edison dataset judge support-reply
    """


dataset.add_command(judge)
dataset.add_command(health)


# --- show -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Filter:
    tags: tuple[str, ...]
    kind: str | None
    difficulty: str | None
    length: str | None
    ids: tuple[str, ...]

    def takes(self, case: Case) -> bool:
        return (
            (not self.tags or any(tag in self.tags for tag in case.tags))
            and (self.kind is None or case.kind == self.kind)
            and (self.difficulty is None or level_of(case.difficulty) == self.difficulty)
            and (self.length is None or length_of(words_in(case)) == self.length)
            and (not self.ids or case.id in self.ids)
        )


@dataset.command(cls=EdisonCommand)
@click.argument("experiment", required=False)
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Only cases with this tag.")
@click.option(
    "--kind", type=click.Choice([kind.value for kind in CaseKind]), help="Only cases of this kind."
)
@click.option(
    "--difficulty",
    type=click.Choice(list(dict.fromkeys(LEVELS.values()))),
    help="Only cases of this difficulty: 1-2 easy, 3 medium, 4-5 hard.",
)
@click.option("--length", type=click.Choice(list(SIZES)), help="Only inputs of this length.")
@click.option("--case", "ids", multiple=True, metavar="ID", help="Only the case with this id.")
@click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    default=10,
    show_default=True,
    metavar="N",
    help="How many cases to show.",
)
@click.option("--full", is_flag=True, help="Show whole texts.")
@click.pass_obj
def show(state: State, /, experiment: str | None, limit: int, full: bool, **wanted: Any) -> None:
    """Show the first cases of an experiment.

    Cases come in the order of the files, as the experiment takes them. Without EXPERIMENT there is
    a part for each.

    Examples:
      edison dataset show
      edison dataset show support-reply --tag billing --difficulty hard
      edison dataset show support-reply --case refund-1 --full
    """
    terminal, project = Terminal(state), project_at(state)
    chosen = _Filter(**wanted)
    found = [(each, *_first(project, each, chosen, limit)) for each in meant(project, experiment)]
    judged = {each.id: _judged(project, each, cases) for each, cases, _ in found}
    if terminal.json:
        terminal.document(
            {
                "experiments": [
                    {
                        "experiment": each.id,
                        "cases": [_case(case, judged[each.id]) for case in cases],
                        "more": more,
                    }
                    for each, cases, more in found
                ]
            }
        )
        return
    for index, (each, cases, more) in enumerate(found):
        if index:
            terminal.result("")
        files = ", ".join(entry.path for entry in each.file.data) or "no dataset"
        terminal.result(Ink(each.id, bold=True), f"  {files}")
        if full:
            _whole(terminal, cases, judged[each.id])
        elif cases:
            _table(terminal, cases, judged[each.id])
        if not cases:
            terminal.note("no case is like that" if each.file.data else "it has no dataset")
        if more:
            terminal.note("there are more: see them with --limit")


def _first(
    project: Project, experiment: Experiment, chosen: _Filter, limit: int
) -> tuple[list[Case], bool]:
    found: list[Case] = []
    for case in cases_of(project, experiment):
        if chosen.takes(case):
            if len(found) == limit:
                return found, True
            found.append(case)
    return found, False


def _judged(
    project: Project, experiment: Experiment, cases: Sequence[Case]
) -> dict[str, JudgedQuestion]:
    """Return what judges said of these cases as they are now."""
    if not (project.root / project.file.results).exists():
        return {}
    current = {str(case.id): content_hash(case) for case in cases}
    with results_of(project) as connection:
        scores = scores_of(connection, experiment.id, list(current))
        found = quality_of(scores, lambda case, content: current.get(case) == content)
    return {question.case: question for question in found.questions}


def _table(terminal: Terminal, cases: Sequence[Case], judged: Mapping[str, JudgedQuestion]) -> None:
    titles: tuple[str, ...] = ("case", "kind", "tags", "difficulty", "input", "expected")
    rows = [titles, *map(_row, cases)]
    if judged:
        mark = " (simulated)" if any(question.simulated for question in judged.values()) else ""
        names = [f"quality{mark}", *(in_short(judged.get(case.id)) for case in cases)]
        rows = [(*row[:4], name, *row[4:]) for row, name in zip(rows, names, strict=True)]
    terminal.table(rows)


def _row(case: Case) -> tuple[str, ...]:
    difficulty = (
        "-" if case.difficulty is None else f"{case.difficulty} {level_of(case.difficulty)}"
    )
    shown = ", ".join(f"{name}: {_plain(value)}" for name, value in case.inputs.items())
    expected = "-" if case.expected is None else _plain(case.expected)
    tags = ", ".join(case.tags) or "-"
    return (
        case.id,
        case.kind,
        _cut(tags, _NARROW),
        difficulty,
        _cut(shown, _WIDE),
        _cut(expected, _NARROW),
    )


def _whole(terminal: Terminal, cases: Sequence[Case], judged: Mapping[str, JudgedQuestion]) -> None:
    for case in cases:
        terminal.result(Ink(f"--- {case.id}", bold=True), f"  {case.kind}  {', '.join(case.tags)}")
        texts = {**case.inputs, **({} if case.expected is None else {"expected": case.expected})}
        for name, value in texts.items():
            first, *rest = _plain(value).split("\n")
            terminal.result(Ink(f"{name}: ", ODD), first)
            for line in rest:
                terminal.result(f"    {line}")
        if case.id in judged:
            tell_question(terminal, judged[case.id])


def _plain(value: Json) -> str:
    return value if isinstance(value, str) else canonical_json(value)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _case(case: Case, judged: Mapping[str, JudgedQuestion]) -> dict[str, Any]:
    question = judged.get(case.id)
    return {
        "quality": None if question is None else question_json(question),
        "id": case.id,
        "line": case.line,
        "input": dict(case.inputs),
        "expected": case.expected,
        "tags": list(case.tags),
        "difficulty": case.difficulty,
        "cluster": case.cluster,
        "metadata": dict(case.metadata),
        "kind": case.kind,
    }


# --- stats ----------------------------------------------------------------------------------------


@dataset.command(cls=EdisonCommand)
@click.argument("experiment", required=False)
@click.pass_obj
def stats(state: State, experiment: str | None) -> None:
    """Count the cases by tag, difficulty, kind and length.

    Length is that of all inputs together, in words: XS up to 10, S 50, M 200, L 1,000, else XL.

    Examples:
      edison dataset stats
      edison dataset stats support-reply --json
    """
    terminal, project = Terminal(state), project_at(state)
    found = [
        (each.id, count(cases_of(project, each), each.file.split))
        for each in meant(project, experiment)
    ]
    if terminal.json:
        documents = [{"experiment": name, **_counts(counts)} for name, counts in found]
        terminal.document({"experiments": documents})
        return
    for index, (name, counts) in enumerate(found):
        if index:
            terminal.result("")
        _tell(terminal, name, counts)


def _tell(terminal: Terminal, name: str, counts: Counts) -> None:
    terminal.result(Ink(name, bold=True), f"  {counted(counts.cases, 'case')}")
    if not counts.cases:
        return
    more = [f"{counts.expected:,} with an expected output", f"{counts.holdout:,} held out"]
    if counts.clustered:
        more.append(f"{counts.clustered:,} in {counted(len(counts.clusters), 'cluster')}")
    more.append(f"{fixed(counts.words / counts.cases, grouped=True)} words on average")
    terminal.result(f"  {', '.join(more)}")
    rows = []
    for about, counter, order in (
        ("kind", counts.kind, None),
        ("difficulty", counts.difficulty, ["easy", "medium", "hard", NONE]),
        ("length", counts.length, SIZES),
        ("tag", counts.tags, None),
    ):
        rows += _bars(about, counter, order, counts.cases)
    terminal.table(rows, right=(2, 3))
    if len(counts.tags) > _MOST_TAGS:
        terminal.note(f"{len(counts.tags) - _MOST_TAGS:,} rarer tags: see --json")


def _bars(
    about: str, counter: Counter[str], order: Sequence[str] | None, cases: int
) -> list[tuple[str, ...]]:
    pairs = counter.most_common(_MOST_TAGS)
    if order is not None:
        pairs = [(name, counter[name]) for name in order if counter[name]]
    return [
        (about, name, f"{n:,}", f"{fixed(100 * n / cases)}%", "#" * round(20 * n / cases))
        for name, n in pairs
    ]


def _counts(counts: Counts) -> dict[str, Any]:
    return {
        "cases": counts.cases,
        "with_expected": counts.expected,
        "held_out": counts.holdout,
        "clustered": counts.clustered,
        "clusters": len(counts.clusters),
        "words": counts.words,
        "kind": dict(counts.kind),
        "difficulty": dict(counts.difficulty),
        "length": dict(counts.length),
        "tags": dict(counts.tags.most_common()),
    }
