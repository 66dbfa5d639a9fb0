"""edison dataset: the cases of an experiment, their statistics and their health."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import click

from edison_ci.cli import case_table, lookup, quarantine
from edison_ci.cli.groups import LazyGroup
from edison_ci.cli.options import CliState, EdisonCommand
from edison_ci.cli.terminal import BAD, GOOD, ODD, StyledText, Terminal
from edison_ci.config import slices
from edison_ci.features.datasets import case_discrimination as result_case_discrimination
from edison_ci.features.datasets import discrimination_table as case_discrimination
from edison_ci.features.datasets import health as dataset_health
from edison_ci.features.datasets import judge_command as dataset_judge
from edison_ci.features.datasets.edit_commands import CaseFilter, filter_options
from edison_ci.judges import pointwise
from edison_ci.numeric import counted, fixed
from edison_ci.records import plain_text
from edison_ci.results import flakiness
from edison_ci.store import judgments

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Mapping, Sequence

    from edison_ci.config.load import Experiment, Project
    from edison_ci.features.datasets.health import (
        CaseList,
        Counts,
        DuplicateCases,
        Health,
        JudgedQuestion,
    )
    from edison_ci.records import Case


def _experiments(project: Project, name: str | None) -> list[Experiment]:
    """Return the named experiment, or all."""
    return [project.experiment(name)] if name else list(project.experiments.values())


_LISTED = 10


@click.command(cls=EdisonCommand)
@click.argument("experiment", required=False)
@click.pass_obj
def health(state: CliState, experiment: str | None) -> None:
    """Find duplicate, contradictory, flaky, weak and useless cases.

    Duplicates have the same inputs; contradictions have the same inputs and different expected
    outputs. Complete runs with the same grading show saturated cases, which always pass, and cases
    on which all answers score the same. Cases answered by fewer than two prompt versions or models
    and results from before an edit are left out. Flaky cases change their result between repeats
    (see edison quarantine suggest); weak questions were judged so (see edison dataset judge).

    A case tells models apart if answers that are good on the other cases are good on it: the
    correlation of its scores with those of the rest, with its 95% interval, is listed from the
    best cases and the worst. It takes answers of at least 5 prompt versions with models.

    Examples:
      edison dataset health
      edison dataset health support-reply --json
    """
    terminal, project = Terminal(state), lookup.open_project(state)
    found = [(each, *_health(project, each)) for each in _experiments(project, experiment)]
    if terminal.json:
        documents = [
            {
                "experiment": each.id,
                **_health_json(one),
                "flaky": flaky.cases,
                "questions": dataset_judge.quality_json(quality),
                "discrimination": case_discrimination.discrimination_json(apart),
            }
            for each, one, flaky, quality, apart in found
        ]
        terminal.document({"experiments": documents})
        return
    for index, (each, one, flaky, quality, apart) in enumerate(found):
        if index:
            terminal.result("")
        _show_health(terminal, each, one)
        case_discrimination.show_discrimination(terminal, apart)
        quarantine.show_flaky(terminal, flaky)
        if quality.questions or quality.stale:
            dataset_judge.show_weak(terminal, quality)


class _Findings(NamedTuple):
    health: Health
    flaky: flakiness.Flakiness
    quality: dataset_health.QuestionQuality
    discrimination: result_case_discrimination.DatasetDiscrimination


def _health(project: Project, experiment: Experiment) -> _Findings:
    examined = dataset_health.examine(
        lambda: lookup.cases_of(project, experiment), slices.content_hash
    )
    if not (project.root / project.file.results).exists():
        return _Findings(
            examined.health,
            flakiness.Flakiness(),
            dataset_health.QuestionQuality(),
            result_case_discrimination.DatasetDiscrimination(),
        )
    with lookup.results_of(project) as connection:
        found = dataset_health.weigh(connection, experiment.id, examined)
        quality = dataset_health.quality_of(
            judgments.question_scores(connection, experiment.id), examined.has
        )
        apart = result_case_discrimination.discrimination_of(
            connection, experiment.id, examined.has
        )
        return _Findings(found, flakiness.flakiness_of(connection, experiment.id), quality, apart)


def _show_health(terminal: Terminal, experiment: Experiment, found: Health) -> None:
    terminal.result(StyledText(experiment.id, bold=True), f"  {counted(found.cases, 'case')}")
    one_file = len(experiment.file.data) == 1  # a line number is unambiguous in one file only
    for word, groups in (
        ("contradiction", found.contradictions),
        ("duplicate", found.duplicates),
    ):
        color = (BAD if word == "contradiction" else ODD) if groups else GOOD
        terminal.result("  ", StyledText(counted(len(groups), word), color))
        for group in groups[:_LISTED]:
            lines = f" (lines {', '.join(map(str, group.lines[:_LISTED]))})" if one_file else ""
            terminal.result(f"    {', '.join(group.cases[:_LISTED])}{lines}")
        if len(groups) > _LISTED:
            terminal.result(f"    and {len(groups) - _LISTED:,} more")
    if found.more_groups:
        terminal.note(f"{found.more_groups:,} further groups of equal inputs were not examined")
    if not found.measured:
        few = f"no case has results of {dataset_health.SUBJECTS} prompt versions or models"
        terminal.note(f"{few}: saturation is unknown")
        return
    for listed, word in (
        (found.saturated, "saturated: every answer passes"),
        (found.same_for_all, "not discriminating: every answer scores the same"),
    ):
        _list(terminal, found.measured, listed, word)
    if found.measured < found.cases:
        left = found.cases - found.measured
        terminal.note(f"{counted(left, 'case')} without enough results")


def _list(terminal: Terminal, measured: int, listed: CaseList, word: str) -> None:
    share = 100 * listed.count / measured
    about = StyledText(f"{counted(listed.count, 'case')} {word}", ODD if share >= 50 else GOOD)
    terminal.result("  ", about, f" ({fixed(share)}% of {measured:,} measured)")
    if listed.count:
        names = ", ".join(tested.case for tested in listed.cases[:_LISTED])
        more = f" and {listed.count - _LISTED:,} more" if listed.count > _LISTED else ""
        terminal.result(f"    {names}{more}")


def _health_json(found: Health) -> dict[str, Any]:
    def groups(listed: Sequence[DuplicateCases]) -> list[dict[str, Any]]:
        return [{"cases": list(group.cases), "lines": list(group.lines)} for group in listed]

    def cases(listed: CaseList) -> dict[str, Any]:
        return {"count": listed.count, "cases": [tested._asdict() for tested in listed.cases]}

    return {
        "ok": found.ok,
        "cases": found.cases,
        "duplicates": groups(found.duplicates),
        "contradictions": groups(found.contradictions),
        "more_groups": found.more_groups,
        "measured": found.measured,
        "saturated": cases(found.saturated),
        "same_for_all": cases(found.same_for_all),
    }


_MOST_TAGS = 20


@click.group(cls=LazyGroup)
def dataset() -> None:
    """Show, count, check and change the cases of a dataset.

    Examples:
      edison dataset show support-reply --tag billing
      edison dataset stats
      edison dataset health
      edison dataset judge support-reply
      edison dataset add --from return-how@small --expected "30 days"
      edison dataset import cases.csv
      edison dataset edit return-how --tag reviewed
      edison dataset generate --hints "late parcels and refunds" --count 40
      edison dataset coverage
    """


# --- show -----------------------------------------------------------------------------------------


@click.command(cls=EdisonCommand)
@click.argument("experiment", required=False)
@filter_options("Show")
@click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    default=10,
    show_default=True,
    metavar="N",
    help="Number of cases to show.",
)
@click.option("--full", is_flag=True, help="Show full texts.")
@click.pass_obj
def show(state: CliState, /, experiment: str | None, limit: int, full: bool, **wanted: Any) -> None:
    """Show the first cases of an experiment.

    Cases are shown in the order in which the experiment uses them. Without EXPERIMENT it shows the
    cases of each.

    Examples:
      edison dataset show
      edison dataset show support-reply --tag billing --difficulty hard
      edison dataset show support-reply --case refund-1 --full
    """
    terminal, project = Terminal(state), lookup.refuse_texts_in_log(lookup.open_project(state))
    chosen = CaseFilter(**wanted)
    found = [
        (each, *_first(project, each, chosen, limit)) for each in _experiments(project, experiment)
    ]
    judged = {each.id: _judgments(project, each, cases) for each, cases, _ in found}
    if terminal.json:
        terminal.document(
            {
                "experiments": [
                    {
                        "experiment": each.id,
                        "files": _files(project, each),
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
        terminal.result(StyledText(each.id, bold=True), f"  {files}")
        _show_abouts(terminal, project, each)
        if full:
            _whole(terminal, cases, judged[each.id])
        elif cases:
            _table(terminal, cases, judged[each.id])
        if not cases:
            terminal.note("no case matches" if each.file.data else "it has no dataset")
        if more:
            terminal.note("there are more cases: raise --limit")


def _show_abouts(terminal: Terminal, project: Project, experiment: Experiment) -> None:
    """Show what is said about the files of an experiment."""
    for entry in experiment.file.data:
        about = project.abouts.get(entry.path)
        if about is None:
            continue
        facts = [f"owner {about.owner}"] if about.owner else []
        facts += [f"tags {', '.join(about.tags)}"] if about.tags else []
        described = [about.description] if about.description else []
        terminal.result(f"  {entry.path}: ", "; ".join([*described, *facts]))


def _files(project: Project, experiment: Experiment) -> list[dict[str, Any]]:
    found = []
    for entry in experiment.file.data:
        about = project.abouts.get(entry.path)
        told = {} if about is None else about.model_dump(mode="json", exclude={"version"})
        empty = {"description": "", "tags": [], "owner": ""}
        found.append({"path": entry.path, "kind": entry.kind, **empty, **told})
    return found


def _first(
    project: Project, experiment: Experiment, chosen: CaseFilter, limit: int
) -> tuple[list[Case], bool]:
    found: list[Case] = []
    for case in lookup.cases_of(project, experiment):
        if chosen.matches(case):
            if len(found) == limit:
                return found, True
            found.append(case)
    return found, False


def _judgments(
    project: Project, experiment: Experiment, cases: Sequence[Case]
) -> dict[str, JudgedQuestion]:
    """Return the judgments of these cases in their current form."""
    if not (project.root / project.file.results).exists():
        return {}
    current = {str(case.id): slices.content_hash(case) for case in cases}
    with lookup.results_of(project) as connection:
        scores = judgments.question_scores(connection, experiment.id, list(current))
        found = dataset_health.quality_of(
            scores, lambda case, content: current.get(case) == content
        )
    return {question.case: question for question in found.questions}


def _table(terminal: Terminal, cases: Sequence[Case], judged: Mapping[str, JudgedQuestion]) -> None:
    columns: list[list[str]] = []
    if judged:
        mark = " (simulated)" if any(question.simulated for question in judged.values()) else ""
        columns = [
            [f"quality{mark}", *(dataset_judge.overall_text(judged.get(case.id)) for case in cases)]
        ]
        columns += [
            [
                case_table.cut(f"{name}{mark}", case_table.NARROW),
                *(dataset_judge.score_text(judged.get(c.id), name) for c in cases),
            ]
            for name in _statements(judged)
        ]
    case_table.show_cases(terminal, cases, columns)


def _statements(judged: Mapping[str, JudgedQuestion]) -> list[str]:
    """Return the sentences to which any of the questions was held."""
    return sorted(
        {name for one in judged.values() for name in one.scores if pointwise.is_statement(name)}
    )


def _whole(terminal: Terminal, cases: Sequence[Case], judged: Mapping[str, JudgedQuestion]) -> None:
    for case in cases:
        terminal.result(
            StyledText(f"--- {case.id}", bold=True), f"  {case.kind}  {', '.join(case.tags)}"
        )
        texts = {**case.inputs, **({} if case.expected is None else {"expected": case.expected})}
        for name, value in texts.items():
            first, *rest = plain_text(value).split("\n")
            terminal.result(StyledText(f"{name}: ", ODD), first)
            for line in rest:
                terminal.result(f"    {line}")
        if case.id in judged:
            dataset_judge.show_question(terminal, judged[case.id])


def _case(case: Case, judged: Mapping[str, JudgedQuestion]) -> dict[str, Any]:
    question = judged.get(case.id)
    return {
        "quality": None if question is None else dataset_judge.question_json(question),
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


@click.command(cls=EdisonCommand)
@click.argument("experiment", required=False)
@click.pass_obj
def stats(state: CliState, experiment: str | None) -> None:
    """Count the cases by tag, difficulty, kind and length.

    The length is the number of words of all inputs: XS up to 10, S 50, M 200, L 1,000, else XL.

    Examples:
      edison dataset stats
      edison dataset stats support-reply --json
    """
    terminal, project = Terminal(state), lookup.open_project(state)
    found = [
        (each, dataset_health.count(lookup.cases_of(project, each), each.file.split))
        for each in _experiments(project, experiment)
    ]
    if terminal.json:
        documents = [
            {"experiment": each.id, "files": _files(project, each), **_counts(counts)}
            for each, counts in found
        ]
        terminal.document({"experiments": documents})
        return
    for index, (each, counts) in enumerate(found):
        if index:
            terminal.result("")
        terminal.result(StyledText(each.id, bold=True), f"  {counted(counts.cases, 'case')}")
        _show_abouts(terminal, project, each)
        _show_counts(terminal, counts)


def _show_counts(terminal: Terminal, counts: Counts) -> None:
    if not counts.cases:
        return
    unverified = f" ({counts.unverified:,} unverified)" if counts.unverified else ""
    more = [
        f"{counts.expected:,} with an expected output{unverified}",
        f"{counts.holdout:,} held out",
    ]
    if counts.clustered:
        more.append(f"{counts.clustered:,} in {counted(len(counts.clusters), 'cluster')}")
    more.append(f"{fixed(counts.words / counts.cases, grouped=True)} words on average")
    terminal.result(f"  {', '.join(more)}")
    rows = []
    for about, counter, order in (
        ("kind", counts.kind, None),
        ("difficulty", counts.difficulty, ["easy", "medium", "hard", slices.NONE]),
        ("length", counts.length, slices.SIZES),
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
        "unverified": counts.unverified,
        "held_out": counts.holdout,
        "clustered": counts.clustered,
        "clusters": len(counts.clusters),
        "words": counts.words,
        "kind": dict(counts.kind),
        "difficulty": dict(counts.difficulty),
        "length": dict(counts.length),
        "tags": dict(counts.tags.most_common()),
    }
