"""edison assist: drafts of a model, accepted, edited, redone or discarded by a person."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import click

from edison_ci._dataclass import dataclass
from edison_ci.api import sessions as run_sessions
from edison_ci.cli.options import CliState, EdisonCommand, EdisonGroup, takes
from edison_ci.documents import decoding, files, secrets, yaml_edit
from edison_ci.errors import UsageError
from edison_ci.features.assist import candidates, draft_dialog, draft_kinds, draft_trials
from edison_ci.numeric import score
from edison_ci.plan import selection
from edison_ci.proposals import candidate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from edison_ci.config.load import Experiment
    from edison_ci.features.assist.candidates import ReachableModels
    from edison_ci.features.assist.draft_dialog import DraftFile, DraftSession, TrialReport
    from edison_ci.features.assist.draft_kinds import Proposal, Proposals
    from edison_ci.features.assist.drafting import DraftTask
    from edison_ci.records import Json

_MOST_OBJECTIVES = 5
_ANSWER_LINES = 12
"""Lines of an answer that are shown with what judges score."""
_SHARED = (
    click.option("--by", metavar="MODEL", help="Model that drafts; default: defaults.assistant."),
    click.option("--yes", is_flag=True, help="Accept the first draft, and write it."),
)


def _shared_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of every draft."""
    for option in reversed(_SHARED):
        command = option(command)
    return command


@click.group(cls=EdisonGroup)
def assist() -> None:
    """Draft an objective, a rubric, prompts or settings, for you to accept.

    A model writes drafts; each becomes a file only if you accept it. The cost is shown first, and a
    stored draft of the last hour costs nothing. On a terminal you accept, edit, redo or discard;
    elsewhere drafts are printed, and --yes writes the first one. The instructions of a draft can be
    replaced by a file of the project: assist/objective.md and so on.

    Examples:
      edison assist objective --hints "answer customers' mails, kind and short"
      edison assist objective --improve
      edison assist rubric --yes
      edison assist prompts --constrain "at most 80 words"
      edison assist improve --focus "shorter replies"
      edison assist judges --try return-how
    """


@dataclass(frozen=True, slots=True)
class DraftOptions:
    """The options of every draft."""

    experiment: str | None
    by: str | None
    yes: bool


@dataclass(frozen=True, slots=True)
class ObjectiveRequest(DraftOptions):
    """The objectives to draft."""

    hints: str
    count: int
    improve: bool
    detail: bool


@assist.command(cls=EdisonCommand)
@click.argument("experiment", required=False)
@click.option("--hints", default="", metavar="TEXT", help="Notes on what the prompt is for.")
@click.option(
    "--count",
    type=click.IntRange(1, _MOST_OBJECTIVES),
    default=3,
    show_default=True,
    help="Number of drafts.",
)
@click.option("--improve", is_flag=True, help="Improve the objective that is there.")
@click.option("--detail", is_flag=True, help="Write longer objectives.")
@_shared_options
@click.pass_obj
@takes(ObjectiveRequest)
def objective(state: CliState, request: ObjectiveRequest) -> None:
    """Draft the objective of an experiment, each with its own focus.

    The notes have 10 to 500 characters. The accepted objective is written to the experiment; its
    comments stay.

    Examples:
      edison assist objective --hints "openings of short stories" --count 5
      edison assist objective support-reply --improve --detail
    """
    session = draft_dialog.DraftSession.open(state, request, "assist objective")
    experiment = session.experiment
    current = experiment.file.objective if request.improve else ""
    if request.improve and not current:
        raise UsageError(f"{experiment.id} has no objective", hint="write one: leave out --improve")
    hints = request.hints.strip()
    before = decoding.decode(files.read(session.project.tree, experiment.path))

    def file(proposal: Proposal) -> DraftFile:
        changed = yaml_edit.with_text(before, "objective", proposal.text, after="experiment")
        return session.file(experiment.path, changed)

    task = draft_kinds.objective_task(hints, request.count, current, detail=request.detail)
    draft_dialog.DraftDialog(session, task, file, extension=".txt").settle()


@dataclass(frozen=True, slots=True)
class RubricRequest(DraftOptions):
    """The rubric to draft."""

    name: str | None


@assist.command(cls=EdisonCommand)
@click.argument("experiment", required=False)
@click.option("--name", metavar="NAME", help="Name of the rubric; default: the experiment's.")
@_shared_options
@click.pass_obj
@takes(RubricRequest)
def rubric(state: CliState, request: RubricRequest) -> None:
    """Draft a rubric from the objective of an experiment.

    It has 4 to 6 criteria from 0 to 5, none of which weighs more than 40%. A rubric that is there
    is changed only after its diff was shown.

    Examples:
      edison assist rubric
      edison assist rubric support-reply --name tone
    """
    session = draft_dialog.DraftSession.open(state, request, "assist rubric")
    name = request.name or session.experiment.id
    path = f"{session.project.file.paths.rubrics}/{name}.yaml"
    draft_dialog.DraftDialog(
        session,
        draft_kinds.rubric_task(draft_kinds.objective_of(session.experiment), name),
        lambda proposal: session.file(path, proposal.text),
        extension=".yaml",
        present=lambda proposal: replace(proposal, label=path),
    ).settle()


@dataclass(frozen=True, slots=True)
class PromptsRequest(DraftOptions):
    """The prompts to draft."""

    constraints: tuple[str, ...]
    inputs: tuple[str, ...]


@assist.command(cls=EdisonCommand)
@click.argument("experiment", required=False)
@click.option(
    "--constrain", "constraints", multiple=True, metavar="TEXT",
    help="What every prompt has to say; repeatable.",
)  # fmt: skip
@click.option(
    "--input", "inputs", multiple=True, metavar="NAME",
    help="Input of the prompt; repeatable; default: those of the experiment's first prompt.",
)  # fmt: skip
@_shared_options
@click.pass_obj
@takes(PromptsRequest)
def prompts(state: CliState, request: PromptsRequest) -> None:
    """Draft prompts in three styles from the objective and the rubric of an experiment.

    The styles are structured, conversational and minimal, each with what speaks for it. An accepted
    prompt becomes a separate file; add it to the prompts of the experiment to compare it.

    Examples:
      edison assist prompts
      edison assist prompts support-reply --constrain "at most 80 words"
    """
    session = draft_dialog.DraftSession.open(state, request, "assist prompts")
    experiment = session.experiment

    def file(proposal: Proposal) -> DraftFile:
        name = f"{experiment.id}-{proposal.name}"
        text = draft_kinds.prompt_file(name, proposal.text)
        return session.file(f"{session.project.file.paths.prompts}/{name}.md", text)

    task = draft_kinds.prompts_task(
        draft_kinds.objective_of(experiment),
        draft_kinds.criteria_of(experiment),
        request.inputs or [*experiment.prompts[0].inputs],
        request.constraints,
    )
    draft_dialog.DraftDialog(session, task, file).settle()


@dataclass(frozen=True, slots=True)
class ImproveRequest(DraftOptions):
    """The prompt to improve, and what is to be better."""

    prompt: str | None
    focus: str


@assist.command(cls=EdisonCommand)
@click.argument("experiment", required=False)
@click.option("--prompt", metavar="NAME", help="Prompt to improve, if there are several.")
@click.option(
    "--focus", required=True, metavar="TEXT", help="What is to be better, in 3 to 500 characters."
)
@_shared_options
@click.pass_obj
@takes(ImproveRequest)
def improve(state: CliState, request: ImproveRequest) -> None:
    """Draft a small change to a prompt, before it is measured.

    The change keeps the guardrails of `edison refine`: inputs, front matter and headings stay, and
    few lines change. Nothing is known about its effect until a run compares it; `edison refine`
    suggests changes from failing cases, and measures them.

    Examples:
      edison assist improve --focus "shorter replies"
      edison assist improve support-reply --focus "quote the policy"
    """
    session = draft_dialog.DraftSession.open(state, request, "assist improve")
    fewest, most = draft_kinds.FOCUS
    focus = request.focus.strip()
    if not fewest <= len(focus) <= most:
        raise UsageError(f"--focus has {len(focus):,} characters; {fewest} to {most} fit")
    target = candidate.target_of(session.project, session.experiment, request.prompt)
    draft_dialog.DraftDialog(
        session,
        draft_kinds.improvement_task(target, focus),
        lambda proposal: session.file(target.prompt.path, proposal.text),
        facts={"prompt": target.prompt.id},
        as_diff=True,
    ).settle()


@assist.command(cls=EdisonCommand)
@click.argument("experiment", required=False)
@_shared_options
@click.pass_obj
@takes(DraftOptions)
def models(state: CliState, request: DraftOptions) -> None:
    """Propose 2 or 3 models for an experiment: fast, balanced and smart.

    Proposes models of models.yaml that can be called, models of vendors whose key is set, and an
    installed local model; none above $0.01 per 1K tokens, the mean of input and output. Those
    that models.yaml lacks are added to it.

    Examples:
      edison assist models
      edison assist models support-reply --yes
    """
    session = draft_dialog.DraftSession.open(state, request, "assist models")
    project, experiment = session.project, session.experiment
    answering = {model.name for _, model, _ in experiment.models}
    judging = project.other_models_of(experiment) - answering
    reachable = candidates.reachable_models(project, "generate", without=judging)
    _show_left_out(session, reachable)
    task = draft_kinds.models_task(draft_kinds.objective_of(experiment), reachable)
    _settle_settings(session, task, "models", reachable)


@dataclass(frozen=True, slots=True)
class JudgesRequest(DraftOptions):
    """The case to try judges with."""

    case: str | None


@assist.command(cls=EdisonCommand)
@click.argument("experiment", required=False)
@click.option("--try", "case", metavar="CASE", help="Show what each judge scores for this case.")
@_shared_options
@click.pass_obj
@takes(JudgesRequest)
def judges(state: CliState, request: JudgesRequest) -> None:
    """Propose the judges of an experiment.

    Proposes 1 to 5 models that score the rubric, how their scores are combined, and a model that
    compares answers by pairs, if that helps. A model that answers does not judge. With --try the
    stored answer to a case, or a new one, is scored by each of them before you decide.

    Examples:
      edison assist judges
      edison assist judges support-reply --try return-how
    """
    session = draft_dialog.DraftSession.open(state, request, "assist judges")
    project, experiment = session.project, session.experiment
    if experiment.rubric is None:
        hint = f"write one: edison assist rubric {experiment.id}"
        raise UsageError(f"{experiment.id} has no rubric that judges could score", hint=hint)
    trial = None
    if request.case is not None:
        case = selection.find_case(project, experiment, request.case)
        trial = partial(_try_judges, state, experiment.id, case.id)
    answering = [model.name for _, model, _ in experiment.models]
    reachable = candidates.reachable_models(project, "judge", without=answering)
    _show_left_out(session, reachable)
    task = draft_kinds.judges_task(
        draft_kinds.objective_of(experiment),
        draft_kinds.criteria_of(experiment),
        reachable,
        experiment.file.judges.combine,
    )
    _settle_settings(session, task, "judges", reachable, trial)


@assist.command(cls=EdisonCommand)
@click.argument("experiment", required=False)
@_shared_options
@click.pass_obj
@takes(DraftOptions)
def limits(state: CliState, request: DraftOptions) -> None:
    """Propose stop rules, and the budget that follows from them.

    The model proposes when a loop stops; the budget and the limit of tokens are computed from the
    plan of that loop, with room for retries. A loop that would cost more than the budget of the
    project is not proposed.

    Examples:
      edison assist limits
      edison assist limits support-reply --yes
    """
    session = draft_dialog.DraftSession.open(state, request, "assist limits")
    task = draft_kinds.limits_task(session.project, session.experiment)
    _settle_settings(session, task, "stop rules")


def _show_left_out(session: DraftSession, reachable: ReachableModels) -> None:
    for note in reachable.notes():
        session.terminal.note(note)


def _settle_settings(
    session: DraftSession,
    task: DraftTask[Proposals],
    what: str,
    reachable: ReachableModels | None = None,
    trial: Callable[[DraftFile], TrialReport] | None = None,
) -> None:
    """Draft settings of the experiment, and add models that models.yaml lacks."""
    before = decoding.decode(files.read(session.project.tree, session.experiment.path))

    def present(proposal: Proposal) -> Proposal:
        text = _with_settings(session.experiment, before, proposal.settings)
        return replace(proposal, label=f"{what} of {session.experiment.id}", text=text)

    def file(proposal: Proposal) -> DraftFile:
        added = candidates.with_models(session.project, proposal.models)
        return draft_dialog.DraftFile(
            session.project, session.experiment.path, proposal.text, added
        )

    facts = {} if reachable is None else reachable.left_out()
    draft_dialog.DraftDialog(
        session, task, file, ".yaml", present, facts, as_diff=True, trial=trial
    ).settle()


def _with_settings(experiment: Experiment, text: str, settings: Mapping[str, Json]) -> str:
    """Return the text of an experiment with other settings; stop rules that it has stay."""
    for key, value in settings.items():
        if not isinstance(value, dict):
            text = yaml_edit.with_value(text, key, value, after="prompts")
            continue
        current = experiment.file.stop.model_dump() if key == "stop" else {}
        changed = {
            name: member
            for name, member in value.items()
            if name not in current or current[name] != member
        }
        if changed:
            text = yaml_edit.with_members(text, key, changed, after="prompts")
    return text


def _try_judges(state: CliState, experiment_id: str, case: str, made: DraftFile) -> TrialReport:
    """Score the answer to a case with the proposed judges."""
    project = made.changed()
    context = run_sessions.run_context(project, offline=state.offline)
    trial = draft_trials.try_panel(project, project.experiment(experiment_id), case, context)
    simulated = {name for name, model in project.models.items() if model.simulated}

    def named(name: str) -> str:
        return f"{name} (simulated)" if name in simulated else name

    answer = secrets.redacted(trial.answer).splitlines()[:_ANSWER_LINES]
    lines = [f"case {case}, answered by {named(trial.model)}:", *(f"  {line}" for line in answer)]
    lines += [f"  not judged: {trial.reason}"] if trial.reason else []
    for judge in trial.judges:
        lines.append(f"{named(judge.name)}: {score(judge.score)}")
        for row in judge.criteria:
            points = row.missing or score(row.score)
            lines.append(f"  {row.criterion}: {points}  {row.reason}".rstrip())
    return draft_dialog.TrialReport({"tried": trial.as_json()}, lines)
