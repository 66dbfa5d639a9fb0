"""edison dataset judge: the quality of the questions of a dataset, rated by judges."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from edison_ci import utc
from edison_ci._dataclass import dataclass
from edison_ci.api import sessions as run_sessions
from edison_ci.cli import lookup, sessions
from edison_ci.cli.options import CliState, EdisonCommand, takes
from edison_ci.cli.terminal import BAD, GOOD, ODD, StyledText, Terminal, simulated_label
from edison_ci.config import case_facts, requirements
from edison_ci.documents import record_json
from edison_ci.errors import CallFailed, ConfigError, ExitCode, UsageError
from edison_ci.features.datasets import health as dataset_health
from edison_ci.features.datasets import question_grading
from edison_ci.judges import instructions as judge_instructions
from edison_ci.judges import judge as judge_judge
from edison_ci.judges import pointwise
from edison_ci.numeric import counted, dollars, fixed
from edison_ci.plan import selection as plan_selection
from edison_ci.spelling import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.models import Model
    from edison_ci.config.rubric import Criterion
    from edison_ci.features.datasets.health import CriterionQuality, JudgedQuestion
    from edison_ci.records import Case, Request

_MOST_JUDGES = 5
_LISTED = 5


@dataclass(frozen=True, slots=True)
class JudgeRequest:
    """The questions to judge, by whom, and by what."""

    experiment: str | None
    judges: tuple[str, ...]
    rubric: str | None
    ask: str | None
    cases: tuple[str, ...]
    tags: tuple[str, ...]
    limit: int | None
    budget: float | None
    no_cache: bool
    yes: bool


@click.command(cls=EdisonCommand)
@click.argument("experiment", required=False)
@click.option(
    "--by",
    "judges",
    multiple=True,
    metavar="MODEL",
    help="Model that judges; repeatable, at most 5.",
)
@click.option("--rubric", metavar="FILE", help="Rubric to use instead of the built-in criteria.")
@click.option(
    "--ask",
    metavar="SENTENCE",
    help="Rate how far one sentence is true of each question, instead of criteria.",
)
@click.option(
    "--case", "cases", multiple=True, metavar="ID", help="Judge only this case; repeatable."
)
@click.option(
    "--tag",
    "tags",
    multiple=True,
    metavar="TAG",
    help="Judge only cases with this tag; repeatable.",
)
@click.option(
    "--limit", type=click.IntRange(min=1), metavar="N", help="Judge a stable sample of N cases."
)
@sessions.budget
@click.option("--no-cache", is_flag=True, help="Request new judgments even where some are stored.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.pass_obj
@takes(JudgeRequest)
def judge(state: CliState, request: JudgeRequest) -> None:
    """Rate the quality of the questions with judges.

    Judges rate each case as a question, not its answers: clarity, difficulty, relevance to the
    objective, originality and overall quality, from 1 to 10 with reasons. With --ask they rate
    from 1 to 10 how far one sentence of your own is true of it. By default the judges of the
    experiment are used, or defaults.judge. The ratings are stored and shown by `dataset show` and
    `dataset health`. After an interruption the same command continues; no rating is paid for
    twice.

    Examples:
      edison dataset judge support-reply
      edison dataset judge support-reply --by judge --by large --limit 20
      edison dataset judge support-reply --rubric rubrics/questions.yaml --budget 2
      edison dataset judge --ask "The policy alone is enough to answer it"
    """
    terminal, project = Terminal(state), lookup.open_project(state, request.experiment)
    experiment = lookup.find_experiment(project, request.experiment)
    if not experiment.file.data:
        raise UsageError(f"{experiment.id} has no dataset", hint="add data: to the experiment")
    yardstick = _yardstick(project, request.rubric, request.ask)
    judges = _judges(project, experiment, request.judges, yardstick)
    selection = plan_selection.Selection((), request.cases, request.tags, request.limit)
    run_sessions.require_editor(project, "dataset judge")
    requirements.refuse(
        requirements.missing_for_models(
            project.models[question_judge.judge.name] for question_judge in judges
        )
    )
    calls = _calls(judges, _selected_cases(project, experiment, selection))
    sessions.confirm_calls(terminal, project, calls, yes=request.yes)
    age = dt.timedelta(days=0 if request.no_cache else project.file.settings.reuse_days)
    result = question_grading.QuestionGrading(
        project,
        experiment,
        judges,
        run_sessions.run_context(project, offline=state.offline),
        newer_than=utc.timestamp(utc.now() - age),
        budget_microusd=sessions.microusd(request.budget),
    ).run(_selected_cases(project, experiment, selection))
    _finish(terminal, project, _Order(experiment, judges, selection), result)


class _Yardstick(NamedTuple):
    criteria: tuple[Criterion, ...]
    statement: str = ""


class _Order(NamedTuple):
    experiment: Experiment
    judges: Sequence[pointwise.QuestionJudge]
    selection: plan_selection.Selection

    @property
    def names(self) -> frozenset[str]:
        """Return the names under which the scores are stored."""
        return frozenset(j.stored_name(criterion) for j in self.judges for criterion in j.criteria)


def _judges(
    project: Project, experiment: Experiment, names: Sequence[str], yardstick: _Yardstick
) -> list[pointwise.QuestionJudge]:
    own = [model.name for model in experiment.judges]
    chosen = list(dict.fromkeys(names or own or filter(None, [project.file.defaults.judge])))
    if not chosen:
        raise UsageError("there is no judge", hint="name a model: --by NAME")
    if len(chosen) > _MOST_JUDGES:
        raise UsageError(f"{len(chosen)} judges; at most {_MOST_JUDGES}", hint="leave some out")
    instructions, judges = judge_instructions.load_instructions("question", project.tree), []
    for name in chosen:
        if name not in project.models:
            hint = did_you_mean(name, project.models, label="models")
            raise UsageError(f"there is no model {name!r}", hint=hint)
        model = project.models[name]
        if project.prices.price_of(model) is None and not model.simulated:
            raise UsageError(
                f"the price of {name} is unknown", hint="set its price in models.yaml, or free"
            )
        objective = experiment.file.objective
        judges.append(
            pointwise.QuestionJudge(
                judge_judge.Judge.of(model),
                yardstick.criteria,
                objective,
                instructions,
                yardstick.statement,
            )
        )
    return judges


def _yardstick(project: Project, path: str | None, sentence: str | None) -> _Yardstick:
    if sentence is not None:
        if path is not None:
            raise UsageError("--rubric and --ask exclude each other", hint="ask one at a time")
        statement = _statement(sentence)
        return _Yardstick(pointwise.statement_criteria(statement), statement)
    if path is None:
        return _Yardstick(pointwise.QUESTION_CRITERIA)
    if path not in project.rubrics:
        hint = did_you_mean(path, project.rubrics, label="rubrics") or "write one in rubrics/"
        raise UsageError(f"there is no rubric {path!r}", hint=hint)
    return _Yardstick(tuple(project.rubrics[path].criteria))


def _statement(text: str) -> str:
    statement = pointwise.statement_of(text)
    if not pointwise.MIN_STATEMENT <= len(statement) <= pointwise.MAX_STATEMENT:
        raise UsageError(
            f"--ask has {counted(len(statement), 'character')}; "
            f"{pointwise.MIN_STATEMENT} to {pointwise.MAX_STATEMENT}",
            hint='write one sentence: --ask "The question has a single right answer"',
        )
    if not statement.isprintable():
        raise UsageError("--ask has invisible characters", hint="write it in plain text")
    return statement


def _selected_cases(
    project: Project, experiment: Experiment, selection: plan_selection.Selection
) -> Iterator[Case]:
    feed = project.cases(experiment)
    yield from selection.pick(feed)
    if feed.problems:
        raise ConfigError(feed.problems)


def _calls(
    judges: Sequence[pointwise.QuestionJudge], cases: Iterator[Case]
) -> Iterator[tuple[Model, Request]]:
    matches = False
    for case in cases:
        for question_judge in judges:
            matches = True
            yield question_judge.judge.model, question_judge.request(case)
    if not matches:
        raise UsageError("no case matches", hint="see: edison dataset show")


def _finish(
    terminal: Terminal,
    project: Project,
    order: _Order,
    result: question_grading.QuestionGradingResult,
) -> None:
    experiment, names = order.experiment, order.names
    cases = _selected_cases(project, experiment, order.selection)
    current = {str(case.id): case_facts.content_hash(case) for case in cases}
    with lookup.results_of(project) as connection:
        quality = dataset_health.stored_quality(
            connection,
            experiment.id,
            lambda case, content: current.get(case) == content,
            cases=current,
            criteria=names,
        )
    if terminal.json:
        terminal.document(
            {"experiment": experiment.id, **_calls_json(result), **quality_json(quality)}
        )
    else:
        show_quality(terminal, experiment.id, quality)
        _show(terminal, result)
    if result.exhausted:
        raise click.exceptions.Exit(ExitCode.BUDGET)
    if not result.answered:
        reasons = "; ".join(f"{name}: {why}" for name, why in result.reasons.items())
        raise CallFailed(f"no judge returned a rating: {reasons}", hint="see: edison models test")


def _show(terminal: Terminal, result: question_grading.QuestionGradingResult) -> None:
    for name, count in result.failed.items():
        terminal.result(
            "  ", StyledText(f"{counted(count, 'verdict')} of {name} could not be used", ODD),
            f": {result.reasons[name]}",
        )  # fmt: skip
    for name, reason in result.closed.items():
        terminal.result("  ", StyledText(f"{name} stopped: ", BAD), reason)
    if result.usage is not None:
        usage = result.usage
        terminal.note(
            f"{counted(usage.bought, 'call')} made, {usage.reused:,} reused; "
            f"{dollars(usage.cost_microusd)}"
        )
    if result.exhausted:
        terminal.note(f"{result.exhausted} is used up: the same command continues")


def show_quality(terminal: Terminal, name: str, quality: dataset_health.QuestionQuality) -> None:
    """Print the quality of the questions and the weak ones."""
    mark = simulated_label(quality.simulated)
    judged = f"{counted(len(quality.questions), 'question')} judged by {', '.join(quality.judges)}"
    terminal.result(StyledText(name, bold=True), f"  {judged}", *mark)
    if quality.criteria:
        rows = [("", "mean", "lowest", "highest", "scale"), *map(_criterion_row, quality.criteria)]
        terminal.table(rows, right=(2, 3))
    show_weak(terminal, quality)


def show_weak(terminal: Terminal, quality: dataset_health.QuestionQuality) -> None:
    """Print weak questions, and those on which judges disagree."""
    weak, disputed = quality.weak, quality.disputed
    mark = simulated_label(quality.simulated)
    if quality.rated:
        count = counted(len(weak), "weak question")
        judged = f" of {quality.rated:,} judged"
        terminal.result("  ", StyledText(count, ODD if weak else GOOD), judged, *mark)
    for question in weak[:_LISTED]:
        terminal.result(f"    {question.case}  {_overall(question)}: {_why(question)}")
    if len(weak) > _LISTED:
        terminal.result(f"    and {len(weak) - _LISTED:,} more")
    for statement in quality.statements:
        _show_statement(terminal, quality, statement)
    if disputed:
        names = ", ".join(question.case for question in disputed[:_LISTED])
        text = f"{counted(len(disputed), 'question')} on which judges disagree"
        terminal.result("  ", StyledText(text, ODD), f": {names}")
    if quality.stale:
        terminal.note(f"{counted(quality.stale, 'case')} edited since: judge them again")


def _show_statement(
    terminal: Terminal, quality: dataset_health.QuestionQuality, criterion: CriterionQuality
) -> None:
    failing = quality.failing(criterion)
    text = f"not true of {len(failing):,} of {counted(criterion.interval.n, 'question')}"
    terminal.result(f"  {criterion.name}", *simulated_label(quality.simulated))
    terminal.result(
        "    ", StyledText(text, ODD if failing else GOOD),
        f"; mean {_mean(criterion)} on {criterion.low:g} to {criterion.high:g}",
    )  # fmt: skip
    for question in failing[:_LISTED]:
        judgments_by_judge = question.judgments[criterion.name]
        reasons = (judgment.reason for judgment in judgments_by_judge.values() if judgment.reason)
        score, why = fixed(question.scores[criterion.name], 1), next(reasons, "no reason given")
        terminal.result(f"    {question.case}  {score}: {why}")
    if len(failing) > _LISTED:
        terminal.result(f"    and {len(failing) - _LISTED:,} more")


def _mean(criterion: CriterionQuality) -> str:
    mean, interval = (
        fixed(criterion.on_scale(criterion.interval.estimate), 1),
        criterion.interval.interval,
    )
    if interval is None:
        return mean
    low, high = (fixed(criterion.on_scale(end), 1) for end in interval)
    return f"{mean} ({low} to {high})"


def _criterion_row(criterion: CriterionQuality) -> tuple[str, ...]:
    scale = f"{criterion.low:g} to {criterion.high:g}"
    return (
        f"  {criterion.name}",
        _mean(criterion),
        fixed(criterion.lowest, 1),
        fixed(criterion.highest, 1),
        scale,
    )


def _overall(question: JudgedQuestion) -> str:
    rated = {
        name: score for name, score in question.scores.items() if not pointwise.is_statement(name)
    }
    return ", ".join(f"{name} {fixed(score, 1)}" for name, score in rated.items())


def _why(question: JudgedQuestion) -> str:
    judges = question.judgments.get(pointwise.OVERALL) or next(
        iter(question.judgments.values()), {}
    )
    return next(
        (judgment.reason for judgment in judges.values() if judgment.reason), "no reason given"
    )


def show_question(terminal: Terminal, question: JudgedQuestion) -> None:
    """Print the ratings of one question with their reasons."""
    mark = ", simulated" if question.simulated else ""
    for name, judges in question.judgments.items():
        for judge_name, judgment in judges.items():
            head = StyledText(f"{name} {judgment.score:g}", ODD)
            terminal.result(head, f" ({judge_name}{mark}): {judgment.reason}")


def overall_text(question: JudgedQuestion | None) -> str:
    """Return the overall rating of a question, for a table."""
    if question is None or question.share is None:
        return "-"
    if pointwise.OVERALL in question.scores:
        return fixed(question.scores[pointwise.OVERALL], 1)
    return f"{fixed(100 * question.share)}%"


def score_text(question: JudgedQuestion | None, criterion: str) -> str:
    """Return the score of a question by a criterion, for a table."""
    if question is None or criterion not in question.scores:
        return "-"
    return fixed(question.scores[criterion], 1)


def quality_json(quality: dataset_health.QuestionQuality) -> dict[str, Any]:
    """Return the quality of questions as it appears in `--json`."""
    return {
        **record_json.fields_of(
            quality, "judges", "simulated", "stale", unusable_scores="unscored"
        ),
        "criteria": [_criterion_json(criterion) for criterion in quality.criteria],
        "statements": [
            {
                **_criterion_json(statement),
                "not_true_of": [question.case for question in quality.failing(statement)],
            }
            for statement in quality.statements
        ],
        "questions": [question_json(question) for question in quality.questions],
    }


def _criterion_json(criterion: CriterionQuality) -> dict[str, Any]:
    mean = criterion.interval
    low, high = mean.interval or (None, None)
    return {
        "name": criterion.name,
        "scale": {"min": criterion.low, "max": criterion.high},
        "mean": {
            "estimate": criterion.on_scale(mean.estimate),
            "low": None if low is None else criterion.on_scale(low),
            "high": None if high is None else criterion.on_scale(high),
            "n": mean.n,
            "method": mean.method,
        },
        "min": criterion.lowest,
        "max": criterion.highest,
    }


def question_json(question: JudgedQuestion) -> dict[str, Any]:
    """Return one question as it appears in `--json`."""
    return record_json.fields_of(
        question, "case", "scores", "disputed", "simulated", weak="is_weak", said="judgments"
    )


def _calls_json(result: question_grading.QuestionGradingResult) -> dict[str, Any]:
    usage = result.usage
    return {
        **record_json.fields_of(result, "cases", "failed", "reasons", stopped="closed"),
        "exhausted": result.exhausted or None,
        "calls": {"made": usage.bought if usage else 0, "reused": usage.reused if usage else 0},
        "cost_microusd": usage.cost_microusd if usage else 0,
    }
