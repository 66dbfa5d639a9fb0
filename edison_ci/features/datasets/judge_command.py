"""edison dataset judge: the quality of the questions of a dataset, rated by judges."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from edison_ci import utc
from edison_ci.api import sessions as run_sessions
from edison_ci.cli import lookup, sessions
from edison_ci.cli.options import CliState, EdisonCommand
from edison_ci.cli.terminal import BAD, GOOD, ODD, StyledText, Terminal, simulated_label
from edison_ci.config import requirements, slices
from edison_ci.errors import CallFailed, ConfigError, ExitCode, UsageError
from edison_ci.features.datasets import health as dataset_health
from edison_ci.features.datasets import question_grading
from edison_ci.judges import instructions as judge_instructions
from edison_ci.judges import judge as judge_judge
from edison_ci.judges import pointwise
from edison_ci.numeric import counted, dollars, fixed
from edison_ci.plan import selection as plan_selection
from edison_ci.spelling import did_you_mean
from edison_ci.store import judgments

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.models import Model
    from edison_ci.config.rubric import Criterion
    from edison_ci.features.datasets.health import CriterionQuality, JudgedQuestion
    from edison_ci.records import Case, Request

_MOST_JUDGES = 5
_LISTED = 5


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
def judge(state: CliState, /, experiment: str | None, **given: Any) -> None:
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
    terminal, project = Terminal(state), lookup.open_project(state)
    chosen = lookup.find_experiment(project, experiment)
    if not chosen.file.data:
        raise UsageError(f"{chosen.id} has no dataset", hint="add data: to the experiment")
    yardstick = _yardstick(project, given["rubric"], given["ask"])
    judges = _judges(project, chosen, given["judges"], yardstick)
    picked = plan_selection.Selection((), given["cases"], given["tags"], given["limit"])
    run_sessions.require_editor(project, "dataset judge")
    requirements.refuse(
        requirements.missing_for_models(project.models[each.judge.name] for each in judges)
    )
    calls = _calls(judges, _selected_cases(project, chosen, picked))
    sessions.confirm_calls(terminal, project, calls, yes=given["yes"])
    age = dt.timedelta(days=0 if given["no_cache"] else project.file.settings.reuse_days)
    budget = given["budget"]
    asked = question_grading.QuestionGrading(
        project,
        chosen,
        judges,
        run_sessions.run_context(project, offline=state.offline),
        newer_than=utc.timestamp(utc.now() - age),
        budget_microusd=sessions.microusd(budget),
    ).run(_selected_cases(project, chosen, picked))
    _finish(terminal, project, _Asked(chosen, judges, picked), asked)


class _Yardstick(NamedTuple):
    criteria: tuple[Criterion, ...]
    statement: str = ""


class _Asked(NamedTuple):
    experiment: Experiment
    judges: Sequence[pointwise.QuestionJudge]
    selection: plan_selection.Selection

    @property
    def names(self) -> frozenset[str]:
        """Return the names under which the scores are stored."""
        return frozenset(j.stored_name(each) for j in self.judges for each in j.criteria)


def _judges(
    project: Project, experiment: Experiment, names: Sequence[str], yardstick: _Yardstick
) -> list[pointwise.QuestionJudge]:
    own = [model.name for model in experiment.judges]
    wanted = list(dict.fromkeys(names or own or filter(None, [project.file.defaults.judge])))
    if not wanted:
        raise UsageError("there is no judge", hint="name a model: --by NAME")
    if len(wanted) > _MOST_JUDGES:
        raise UsageError(f"{len(wanted)} judges; at most {_MOST_JUDGES}", hint="leave some out")
    instructions, found = judge_instructions.load_instructions("question", project.tree), []
    for name in wanted:
        if name not in project.models:
            hint = did_you_mean(name, project.models, label="models")
            raise UsageError(f"there is no model {name!r}", hint=hint)
        model = project.models[name]
        if project.prices.price_of(model) is None and not model.simulated:
            raise UsageError(
                f"the price of {name} is unknown", hint="set its price in models.yaml, or free"
            )
        objective = experiment.file.objective
        found.append(
            pointwise.QuestionJudge(
                judge_judge.Judge.of(model),
                yardstick.criteria,
                objective,
                instructions,
                yardstick.statement,
            )
        )
    return found


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
    found = pointwise.statement_of(text)
    if not pointwise.MIN_STATEMENT <= len(found) <= pointwise.MAX_STATEMENT:
        raise UsageError(
            f"--ask has {counted(len(found), 'character')}; "
            f"{pointwise.MIN_STATEMENT} to {pointwise.MAX_STATEMENT}",
            hint='write one sentence: --ask "The question has a single right answer"',
        )
    if not found.isprintable():
        raise UsageError("--ask has invisible characters", hint="write it in plain text")
    return found


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
    found = False
    for case in cases:
        for one in judges:
            found = True
            yield one.judge.model, one.request(case)
    if not found:
        raise UsageError("no case matches", hint="see: edison dataset show")


# --- the result -----------------------------------------------------------------------------------


def _finish(
    terminal: Terminal,
    project: Project,
    wanted: _Asked,
    asked: question_grading.QuestionGradingResult,
) -> None:
    experiment, names = wanted.experiment, wanted.names
    cases = _selected_cases(project, experiment, wanted.selection)
    current = {str(case.id): slices.content_hash(case) for case in cases}
    with lookup.results_of(project) as connection:
        scores = [
            score
            for score in judgments.question_scores(connection, experiment.id)
            if score.case_id in current and score.criterion in names
        ]
    found = dataset_health.quality_of(scores, lambda case, content: current.get(case) == content)
    if terminal.json:
        terminal.document(
            {"experiment": experiment.id, **_calls_json(asked), **quality_json(found)}
        )
    else:
        show_quality(terminal, experiment.id, found)
        _show(terminal, asked)
    if asked.exhausted:
        raise click.exceptions.Exit(ExitCode.BUDGET)
    if not asked.answered:
        reasons = "; ".join(f"{name}: {why}" for name, why in asked.reasons.items())
        raise CallFailed(f"no judge returned a rating: {reasons}", hint="see: edison models test")


def _show(terminal: Terminal, asked: question_grading.QuestionGradingResult) -> None:
    for name, count in asked.failed.items():
        terminal.result(
            "  ", StyledText(f"{counted(count, 'verdict')} of {name} could not be used", ODD),
            f": {asked.reasons[name]}",
        )  # fmt: skip
    for name, reason in asked.closed.items():
        terminal.result("  ", StyledText(f"{name} stopped: ", BAD), reason)
    if asked.usage is not None:
        usage = asked.usage
        terminal.note(
            f"{counted(usage.bought, 'call')} made, {usage.reused:,} reused; "
            f"{dollars(usage.cost_microusd)}"
        )
    if asked.exhausted:
        terminal.note(f"{asked.exhausted} is used up: the same command continues")


def show_quality(terminal: Terminal, name: str, found: dataset_health.QuestionQuality) -> None:
    """Print the quality of the questions and the weak ones."""
    mark = simulated_label(found.simulated)
    judged = f"{counted(len(found.questions), 'question')} judged by {', '.join(found.judges)}"
    terminal.result(StyledText(name, bold=True), f"  {judged}", *mark)
    if found.criteria:
        rows = [("", "mean", "lowest", "highest", "scale"), *map(_criterion_row, found.criteria)]
        terminal.table(rows, right=(2, 3))
    show_weak(terminal, found)


def show_weak(terminal: Terminal, found: dataset_health.QuestionQuality) -> None:
    """Print weak questions, and those on which judges disagree."""
    weak, disputed = found.weak, found.disputed
    mark = simulated_label(found.simulated)
    if found.rated:
        said = f"{counted(len(weak), 'weak question')}"
        judged = f" of {found.rated:,} judged"
        terminal.result("  ", StyledText(said, ODD if weak else GOOD), judged, *mark)
    for question in weak[:_LISTED]:
        terminal.result(f"    {question.case}  {_overall(question)}: {_why(question)}")
    if len(weak) > _LISTED:
        terminal.result(f"    and {len(weak) - _LISTED:,} more")
    for statement in found.statements:
        _show_statement(terminal, found, statement)
    if disputed:
        names = ", ".join(question.case for question in disputed[:_LISTED])
        said = f"{counted(len(disputed), 'question')} on which judges disagree"
        terminal.result("  ", StyledText(said, ODD), f": {names}")
    if found.stale:
        terminal.note(f"{counted(found.stale, 'case')} edited since: judge them again")


def _show_statement(
    terminal: Terminal, found: dataset_health.QuestionQuality, one: CriterionQuality
) -> None:
    failing = found.failing(one)
    said = f"not true of {len(failing):,} of {counted(one.interval.n, 'question')}"
    terminal.result(f"  {one.name}", *simulated_label(found.simulated))
    terminal.result(
        "    ", StyledText(said, ODD if failing else GOOD),
        f"; mean {_mean(one)} on {one.low:g} to {one.high:g}",
    )  # fmt: skip
    for question in failing[:_LISTED]:
        reasons = (said.reason for said in question.judgments[one.name].values() if said.reason)
        score, why = fixed(question.scores[one.name], 1), next(reasons, "no reason given")
        terminal.result(f"    {question.case}  {score}: {why}")
    if len(failing) > _LISTED:
        terminal.result(f"    and {len(failing) - _LISTED:,} more")


def _mean(one: CriterionQuality) -> str:
    mean, interval = fixed(one.on_scale(one.interval.estimate), 1), one.interval.interval
    if interval is None:
        return mean
    low, high = (fixed(one.on_scale(end), 1) for end in interval)
    return f"{mean} ({low} to {high})"


def _criterion_row(one: CriterionQuality) -> tuple[str, ...]:
    scale = f"{one.low:g} to {one.high:g}"
    return (f"  {one.name}", _mean(one), fixed(one.lowest, 1), fixed(one.highest, 1), scale)


def _overall(question: JudgedQuestion) -> str:
    rated = {
        name: score for name, score in question.scores.items() if not pointwise.is_statement(name)
    }
    return ", ".join(f"{name} {fixed(score, 1)}" for name, score in rated.items())


def _why(question: JudgedQuestion) -> str:
    judges = question.judgments.get(pointwise.OVERALL) or next(
        iter(question.judgments.values()), {}
    )
    return next((said.reason for said in judges.values() if said.reason), "no reason given")


def show_question(terminal: Terminal, question: JudgedQuestion) -> None:
    """Print the ratings of one question with their reasons."""
    mark = ", simulated" if question.simulated else ""
    for name, judges in question.judgments.items():
        for who, said in judges.items():
            terminal.result(
                StyledText(f"{name} {said.score:g}", ODD), f" ({who}{mark}): {said.reason}"
            )


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


def quality_json(found: dataset_health.QuestionQuality) -> dict[str, Any]:
    """Return the quality of questions as it appears in `--json`."""
    return {
        "judges": list(found.judges),
        "simulated": found.simulated,
        "stale": found.stale,
        "unusable_scores": found.unscored,
        "criteria": [_criterion_json(one) for one in found.criteria],
        "statements": [
            {**_criterion_json(one), "not_true_of": [q.case for q in found.failing(one)]}
            for one in found.statements
        ],
        "questions": [question_json(question) for question in found.questions],
    }


def _criterion_json(one: CriterionQuality) -> dict[str, Any]:
    low, high = one.interval.low, one.interval.high
    return {
        "name": one.name,
        "scale": {"min": one.low, "max": one.high},
        "mean": {
            "estimate": one.on_scale(one.interval.estimate),
            "low": None if low is None else one.on_scale(low),
            "high": None if high is None else one.on_scale(high),
            "n": one.interval.n,
            "method": one.interval.method,
        },
        "min": one.lowest,
        "max": one.highest,
    }


def question_json(question: JudgedQuestion) -> dict[str, Any]:
    """Return one question as it appears in `--json`."""
    return {
        "case": question.case,
        "scores": dict(question.scores),
        "weak": question.is_weak,
        "disputed": list(question.disputed),
        "simulated": question.simulated,
        "said": {
            name: {who: said._asdict() for who, said in judges.items()}
            for name, judges in question.judgments.items()
        },
    }


def _calls_json(asked: question_grading.QuestionGradingResult) -> dict[str, Any]:
    usage = asked.usage
    return {
        "cases": asked.cases,
        "failed": dict(asked.failed),
        "reasons": asked.reasons,
        "stopped": asked.closed,
        "exhausted": asked.exhausted or None,
        "calls": {"made": usage.bought if usage else 0, "reused": usage.reused if usage else 0},
        "cost_microusd": usage.cost_microusd if usage else 0,
    }
