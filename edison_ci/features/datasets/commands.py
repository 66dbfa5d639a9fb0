"""edison dataset: the cases of an experiment, their statistics and their health."""

from __future__ import annotations

from dataclasses import field
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from edison_ci._dataclass import dataclass
from edison_ci.cli import cases as cli_cases
from edison_ci.cli import lookup, quarantine
from edison_ci.cli.groups import LazyGroup
from edison_ci.cli.options import CliState, EdisonCommand, takes
from edison_ci.cli.terminal import BAD, GOOD, ODD, StyledText, Terminal, simulated_label
from edison_ci.config import case_facts
from edison_ci.config import cases as config_cases
from edison_ci.documents import record_json
from edison_ci.features.datasets import case_discrimination
from edison_ci.features.datasets import health as dataset_health
from edison_ci.features.datasets import judge_command as dataset_judge
from edison_ci.features.datasets.edit_commands import CaseFilter, filter_options
from edison_ci.judges import pointwise
from edison_ci.numeric import counted, fixed
from edison_ci.records import plain_text
from edison_ci.results import case_history
from edison_ci.stats import discrimination, sentences

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Mapping, Sequence

    from edison_ci.config.load import Experiment, Project
    from edison_ci.features.datasets.case_discrimination import (
        CaseDiscrimination,
        DatasetDiscrimination,
    )
    from edison_ci.features.datasets.health import (
        CaseList,
        Counts,
        Health,
        JudgedQuestion,
        QuestionQuality,
    )
    from edison_ci.records import Case
    from edison_ci.results.case_history import Flakiness


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

    A case tells models apart if models that do well on the other cases do well on it: the
    correlation of its scores with those of the rest, with its 95% interval, is listed from the
    best cases and the worst. It takes answers of at least 5 prompt versions with models.

    Examples:
      edison dataset health
      edison dataset health support-reply --json
    """
    terminal, project = Terminal(state), lookup.open_project(state, experiment)
    by_experiment = [
        (chosen, _health(project, chosen)) for chosen in _experiments(project, experiment)
    ]
    if terminal.json:
        documents = [
            {
                "experiment": chosen.id,
                **_health_json(findings.health),
                "flaky": findings.flaky.cases,
                "questions": dataset_judge.quality_json(findings.quality),
                "discrimination": _discrimination_json(findings.discrimination),
            }
            for chosen, findings in by_experiment
        ]
        terminal.document({"experiments": documents})
        return
    for index, (chosen, findings) in enumerate(by_experiment):
        if index:
            terminal.result("")
        _show_health(terminal, chosen, findings.health)
        _show_discrimination(terminal, findings.discrimination)
        quarantine.show_flaky(terminal, findings.flaky)
        if findings.quality.questions or findings.quality.stale:
            dataset_judge.show_weak(terminal, findings.quality)


@dataclass(slots=True)
class _Findings:
    health: Health
    flaky: Flakiness = field(default_factory=lambda: case_history.Flakiness())
    quality: QuestionQuality = field(default_factory=lambda: dataset_health.QuestionQuality())
    discrimination: DatasetDiscrimination = field(
        default_factory=lambda: case_discrimination.DatasetDiscrimination()
    )


def _health(project: Project, experiment: Experiment) -> _Findings:
    examined = dataset_health.examine(
        lambda: lookup.cases_of(project, experiment), case_facts.content_hash
    )
    if not (project.root / project.file.results).exists():
        return _Findings(examined.health)
    name, has = experiment.id, examined.has
    with lookup.results_of(project) as reader:
        return _Findings(
            dataset_health.weigh(reader, name, examined),
            case_history.flakiness_of(reader, name),
            dataset_health.stored_quality(reader, name, has),
            case_discrimination.discrimination_of(reader, name, has),
        )


def _show_health(terminal: Terminal, experiment: Experiment, health: Health) -> None:
    terminal.result(StyledText(experiment.id, bold=True), f"  {counted(health.cases, 'case')}")
    one_file = len(experiment.file.data) == 1  # a line number is unambiguous in one file only
    for word, groups in (
        ("contradiction", health.contradictions),
        ("duplicate", health.duplicates),
    ):
        color = (BAD if word == "contradiction" else ODD) if groups else GOOD
        terminal.result("  ", StyledText(counted(len(groups), word), color))
        for group in groups[:_LISTED]:
            lines = f" (lines {', '.join(map(str, group.lines[:_LISTED]))})" if one_file else ""
            terminal.result(f"    {', '.join(group.cases[:_LISTED])}{lines}")
        if len(groups) > _LISTED:
            terminal.result(f"    and {len(groups) - _LISTED:,} more")
    if health.more_groups:
        terminal.note(f"{health.more_groups:,} further groups of equal inputs were not examined")
    if not health.measured:
        few = f"no case has results of {dataset_health.SUBJECTS} prompt versions or models"
        terminal.note(f"{few}: saturation is unknown")
        return
    for listed, word in (
        (health.saturated, "saturated: every answer passes"),
        (health.same_for_all, "not discriminating: every answer scores the same"),
    ):
        _list(terminal, health.measured, listed, word)
    if health.measured < health.cases:
        left = health.cases - health.measured
        terminal.note(f"{counted(left, 'case')} without enough results")


def _list(terminal: Terminal, measured: int, listed: CaseList, word: str) -> None:
    share = 100 * listed.count / measured
    about = StyledText(f"{counted(listed.count, 'case')} {word}", ODD if share >= 50 else GOOD)
    terminal.result("  ", about, f" ({fixed(share)}% of {measured:,} measured)")
    if listed.count:
        names = ", ".join(tested.case for tested in listed.cases[:_LISTED])
        more = f" and {listed.count - _LISTED:,} more" if listed.count > _LISTED else ""
        terminal.result(f"    {names}{more}")


def _health_json(health: Health) -> dict[str, Any]:
    return record_json.fields_of(
        health, "ok", "cases", "duplicates", "contradictions", "more_groups", "measured",
        "saturated", "same_for_all",
    )  # fmt: skip


_RANKED = 5
"""The best and the worst cases that are listed by how far they tell models apart."""


def _show_discrimination(terminal: Terminal, dataset: DatasetDiscrimination) -> None:
    """Print how many cases tell models apart, with the best and the worst of them."""
    if dataset.too_large:
        terminal.note("too many answers to compute which cases tell models apart")
        return
    if not dataset.enough:
        if dataset.subjects:
            terminal.note(
                f"too few answers to know which cases tell models apart: they cover "
                f"{counted(dataset.subjects, 'prompt version')} with a model, and at least "
                f"{discrimination.FEWEST_SUBJECTS} are needed"
            )
        return
    apart = dataset.count(case_discrimination.CaseVerdict.SEPARATES)
    text = f"{apart:,} of {counted(len(dataset.cases), 'case')} tell models apart"
    terminal.result(
        "  ", StyledText(text, GOOD if apart else ODD),
        f" ({dataset.answers:,} answers, of {dataset.subjects:,} prompt versions with models)",
        *simulated_label(dataset.simulated),
    )  # fmt: skip
    ranked = [case for case in dataset.cases if case.found.interval is not None]
    if ranked:
        rows: list[tuple[str, ...]] = [
            ("", "", "correlation with the rest", "score", "p, adjusted", ""),
            *(_case_row("best", case) for case in ranked[:_RANKED]),
            *(_case_row("worst", case) for case in ranked[_RANKED:][-_RANKED:]),
        ]
        terminal.table(rows, right=(3,))
    _show_useless(terminal, dataset)


def _case_row(end: str, case: CaseDiscrimination) -> tuple[str, ...]:
    correlation = "-" if case.found.value is None else fixed(case.found.value, 2)
    if case.found.value is not None and case.found.interval is not None:
        low, high = (fixed(limit, 2) for limit in case.found.interval)
        correlation += f" ({low} to {high})"
    return (
        f"    {end}",
        case.case,
        correlation,
        fixed(100 * case.score, 1),
        "-" if case.p_adjusted is None else sentences.p_words(case.p_adjusted),
        case.verdict.words,
    )


def _show_useless(terminal: Terminal, dataset: DatasetDiscrimination) -> None:
    verdicts, dead = case_discrimination.CaseVerdict, case_discrimination.DEAD
    for verdict, color, words in (
        (
            verdicts.REVERSED,
            BAD,
            "reversed: models that do well elsewhere fail here; check the expected",
        ),
        (verdicts.DEAD, ODD, f"dead weight: no difference, or a correlation of at most {dead:g}"),
    ):
        names = [case.case for case in dataset.cases if case.verdict is verdict]
        if names:
            more = f" and {len(names) - 2 * _RANKED:,} more" if len(names) > 2 * _RANKED else ""
            terminal.result("  ", StyledText(f"{counted(len(names), 'case')} {words}", color))
            terminal.result(f"    {', '.join(names[: 2 * _RANKED])}{more}")
    unclear, few = dataset.count(verdicts.UNCLEAR), dataset.count(verdicts.TOO_FEW)
    if unclear or few:
        terminal.note(
            f"{counted(unclear, 'case')} unclear, {few:,} with too few answers to tell: "
            "more prompt versions, models or repeats show more"
        )


def _discrimination_json(dataset: DatasetDiscrimination) -> dict[str, Any]:
    verdicts = case_discrimination.CaseVerdict
    return {
        "enough": dataset.enough and not dataset.too_large,
        **record_json.fields_of(dataset, "subjects", "answers", "simulated", "family"),
        "counts": {verdict.name.lower(): dataset.count(verdict) for verdict in verdicts},
        "cases": [_correlation_json(case) for case in dataset.cases],
    }


def _correlation_json(case: CaseDiscrimination) -> dict[str, Any]:
    low, high = case.found.interval or (None, None)
    return {
        "case": case.case,
        "verdict": case.verdict.name.lower(),
        "low": low,
        "high": high,
        "p_adjusted": case.p_adjusted,
        "score": case.score,
        **record_json.fields_of(
            case.found, "n", "subjects", "p", "method", "level", estimate="value"
        ),
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


@dataclass(frozen=True, slots=True)
class ShowRequest(CaseFilter):
    """The cases to show, and how many."""

    experiment: str | None
    limit: int
    full: bool


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
@takes(ShowRequest)
def show(state: CliState, request: ShowRequest) -> None:
    """Show the first cases of an experiment.

    Cases are shown in the order in which the experiment uses them. Without EXPERIMENT it shows the
    cases of each.

    Examples:
      edison dataset show
      edison dataset show support-reply --tag billing --difficulty hard
      edison dataset show support-reply --case refund-1 --full
    """
    terminal, project = (
        Terminal(state),
        lookup.refuse_texts_in_log(lookup.open_project(state, request.experiment)),
    )
    listings = [
        (experiment, *_first(project, experiment, request))
        for experiment in _experiments(project, request.experiment)
    ]
    judged = {
        experiment.id: _judgments(project, experiment, cases) for experiment, cases, _ in listings
    }
    if terminal.json:
        documents = [
            {
                "experiment": experiment.id,
                "files": _files(project, experiment),
                "cases": [_case(case, judged[experiment.id]) for case in cases],
                "more": more,
            }
            for experiment, cases, more in listings
        ]
        terminal.document({"experiments": documents})
        return
    for index, (experiment, cases, more) in enumerate(listings):
        if index:
            terminal.result("")
        files = ", ".join(entry.path for entry in experiment.file.data) or "no dataset"
        terminal.result(StyledText(experiment.id, bold=True), f"  {files}")
        _show_abouts(terminal, project, experiment)
        if request.full:
            _whole(terminal, cases, judged[experiment.id])
        elif cases:
            _table(terminal, cases, judged[experiment.id])
        if not cases:
            terminal.note("no case matches" if experiment.file.data else "it has no dataset")
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
    documents = []
    for entry in experiment.file.data:
        about = project.abouts.get(entry.path)
        described = {} if about is None else about.model_dump(mode="json", exclude={"version"})
        empty = {"description": "", "tags": [], "owner": ""}
        documents.append({"path": entry.path, "kind": entry.kind, **empty, **described})
    return documents


def _first(
    project: Project, experiment: Experiment, request: ShowRequest
) -> tuple[list[Case], bool]:
    """Return the first cases that match, and whether there are more."""
    matching = filter(request.matches, lookup.cases_of(project, experiment))
    cases = list(islice(matching, request.limit + 1))
    return cases[: request.limit], len(cases) > request.limit


def _judgments(
    project: Project, experiment: Experiment, cases: Sequence[Case]
) -> dict[str, JudgedQuestion]:
    """Return the judgments of these cases in their current form."""
    if not (project.root / project.file.results).exists():
        return {}
    current = {str(case.id): case_facts.content_hash(case) for case in cases}
    with lookup.results_of(project) as connection:
        quality = dataset_health.stored_quality(
            connection,
            experiment.id,
            lambda case, content: current.get(case) == content,
            cases=current,
        )
    return {question.case: question for question in quality.questions}


def _table(terminal: Terminal, cases: Sequence[Case], judged: Mapping[str, JudgedQuestion]) -> None:
    columns: list[list[str]] = []
    if judged:
        mark = " (simulated)" if any(question.simulated for question in judged.values()) else ""
        columns = [
            [f"quality{mark}", *(dataset_judge.overall_text(judged.get(case.id)) for case in cases)]
        ]
        columns += [
            [
                cli_cases.cut(f"{name}{mark}", cli_cases.NARROW),
                *(dataset_judge.score_text(judged.get(c.id), name) for c in cases),
            ]
            for name in _statements(judged)
        ]
    cli_cases.show_cases(terminal, cases, columns)


def _statements(judged: Mapping[str, JudgedQuestion]) -> list[str]:
    """Return the sentences to which any of the questions was held."""
    return sorted(
        {
            name
            for question in judged.values()
            for name in question.scores
            if pointwise.is_statement(name)
        }
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
        **record_json.fields_of(
            case, "id", "line", "expected", "tags", "difficulty", "cluster", "metadata", "kind",
            input="inputs",
        ),
    }  # fmt: skip


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
    terminal, project = Terminal(state), lookup.open_project(state, experiment)
    by_experiment = []
    for chosen in _experiments(project, experiment):
        units = config_cases.Units()
        cases = lookup.cases_of(project, chosen, units)
        by_experiment.append((chosen, dataset_health.count(cases, chosen.file.split, units)))
    if terminal.json:
        documents = [
            {"experiment": chosen.id, "files": _files(project, chosen), **_counts(counts)}
            for chosen, counts in by_experiment
        ]
        terminal.document({"experiments": documents})
        return
    for index, (chosen, counts) in enumerate(by_experiment):
        if index:
            terminal.result("")
        terminal.result(StyledText(chosen.id, bold=True), f"  {counted(counts.cases, 'case')}")
        _show_abouts(terminal, project, chosen)
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
        ("difficulty", counts.difficulty, ["easy", "medium", "hard", case_facts.NONE]),
        ("length", counts.length, case_facts.SIZES),
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
        **record_json.fields_of(
            counts, "cases", "unverified", "clustered", "words", "kind", "difficulty", "length",
            with_expected="expected", held_out="holdout",
        ),
        "clusters": len(counts.clusters),
        "tags": dict(counts.tags.most_common()),
    }  # fmt: skip
