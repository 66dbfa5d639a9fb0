"""edison assist: drafts of a model, accepted, edited, redone or discarded by a person."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from edison_ci.api import sessions as run_sessions
from edison_ci.cli.options import CliState, EdisonCommand, EdisonGroup
from edison_ci.contracts import CallError
from edison_ci.documents import decoding, files, secrets, yaml_edit
from edison_ci.errors import CallFailed, UsageError
from edison_ci.execute import standalone
from edison_ci.features.assist import (
    candidates,
    draft_files,
    improvement,
    judge_panels,
    model_sets,
    rubrics,
    stop_limits,
)
from edison_ci.features.assist import prompts as assist_prompts
from edison_ci.features.assist.draft_dialog import (
    Assistance,
    Option,
    TrialReport,
    drafter_of,
    objective_of,
    open_experiment,
    shared_options,
)
from edison_ci.features.assist.objectives import MOST, objective_kind, objective_question
from edison_ci.numeric import score
from edison_ci.plan import selection
from edison_ci.proposals import candidate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edison_ci.cli.terminal import Terminal
    from edison_ci.config.load import Experiment, Project
    from edison_ci.features.assist.candidates import ReachableModels
    from edison_ci.features.assist.judge_panels import PanelDraft
    from edison_ci.features.assist.model_sets import ModelDraft

_ANSWER_LINES = 12
"""Lines of an answer that are shown with what judges score."""


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


@assist.command(cls=EdisonCommand)
@click.argument("experiment", required=False)
@click.option("--hints", default="", metavar="TEXT", help="Notes on what the prompt is for.")
@click.option(
    "--count", type=click.IntRange(1, MOST), default=3, show_default=True, help="Number of drafts."
)
@click.option("--improve", is_flag=True, help="Improve the objective that is there.")
@click.option("--detail", is_flag=True, help="Write longer objectives.")
@shared_options
@click.pass_obj
def objective(state: CliState, /, experiment: str | None, **given: Any) -> None:
    """Draft the objective of an experiment, each with a focus of its own.

    The notes have 10 to 500 characters. The accepted objective is written to the experiment; its
    comments stay.

    Examples:
      edison assist objective --hints "openings of short stories" --count 5
      edison assist objective support-reply --improve --detail
    """
    terminal, project, chosen = open_experiment(state, experiment, "assist objective")
    current = chosen.file.objective if given["improve"] else ""
    if given["improve"] and not current:
        raise UsageError(f"{chosen.id} has no objective", hint="write one: leave out --improve")
    question = objective_question(
        given["hints"].strip(), given["count"], current, detail=given["detail"]
    )
    before = decoding.decode(files.read(project.tree, chosen.path))

    def file(option: Option) -> draft_files.DraftFile:
        changed = yaml_edit.with_text(before, "objective", option.text, after="experiment")
        return draft_files.DraftFile(project, chosen.path, changed)

    Assistance(
        terminal,
        project,
        drafter_of(state, project, given["by"]),
        objective_kind(given["count"]),
        question,
        lambda drafts: [Option(draft.focus, draft.text) for draft in drafts],
        file,
        extension=".txt",
        told={"experiment": chosen.id},
    ).settle(yes=given["yes"])


@assist.command(cls=EdisonCommand)
@click.argument("experiment", required=False)
@click.option("--name", metavar="NAME", help="Name of the rubric; default: the experiment's.")
@shared_options
@click.pass_obj
def rubric(state: CliState, /, experiment: str | None, **given: Any) -> None:
    """Draft a rubric from the objective of an experiment.

    It has 4 to 6 criteria from 0 to 5, none of which weighs more than 40%. A rubric that is there
    is changed only after its diff was shown.

    Examples:
      edison assist rubric
      edison assist rubric support-reply --name tone
    """
    terminal, project, chosen = open_experiment(state, experiment, "assist rubric")
    objective = objective_of(chosen)
    name = given["name"] or chosen.id
    path = f"{project.file.paths.rubrics}/{name}.yaml"

    Assistance(
        terminal,
        project,
        drafter_of(state, project, given["by"]),
        rubrics.RUBRIC,
        rubrics.rubric_question(objective),
        lambda drafts: [Option(path, rubrics.rubric_text(name, drafts))],
        lambda chosen: draft_files.DraftFile(project, path, chosen.text),
        extension=".yaml",
        told={"experiment": chosen.id},
    ).settle(yes=given["yes"])


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
@shared_options
@click.pass_obj
def prompts(state: CliState, /, experiment: str | None, **given: Any) -> None:
    """Draft prompts in three styles from the objective and the rubric of an experiment.

    The styles are structured, conversational and minimal, each with what speaks for it. An accepted
    prompt becomes a file of its own; add it to the prompts of the experiment to compare it.

    Examples:
      edison assist prompts
      edison assist prompts support-reply --constrain "at most 80 words"
    """
    terminal, project, chosen = open_experiment(state, experiment, "assist prompts")
    objective = objective_of(chosen)
    inputs = given["inputs"] or [*chosen.prompts[0].inputs]
    criteria = _criteria(chosen)

    def file(option: Option) -> draft_files.DraftFile:
        name = f"{chosen.id}-{option.name}"
        text = assist_prompts.PromptDraft(option.name, option.text.strip(), "").file_text(name)
        return draft_files.DraftFile(project, f"{project.file.paths.prompts}/{name}.md", text)

    Assistance(
        terminal,
        project,
        drafter_of(state, project, given["by"]),
        assist_prompts.prompt_kind(inputs),
        assist_prompts.prompt_question(objective, criteria, inputs, given["constraints"]),
        lambda drafts: [
            Option(f"{each.style}: {each.rationale}", each.text, each.style) for each in drafts
        ],
        file,
        told={"experiment": chosen.id},
    ).settle(yes=given["yes"])


@assist.command(cls=EdisonCommand)
@click.argument("experiment", required=False)
@click.option("--prompt", metavar="NAME", help="Prompt to improve, if there are several.")
@click.option(
    "--focus", required=True, metavar="TEXT", help="What is to be better, in 3 to 500 characters."
)
@shared_options
@click.pass_obj
def improve(state: CliState, /, experiment: str | None, **given: Any) -> None:
    """Draft a small change to a prompt, before it is measured.

    The change keeps the guardrails of `edison refine`: inputs, front matter and headings stay, and
    few lines change. Nothing is known about its effect until a run compares it; `edison refine`
    suggests changes from failing cases, and measures them.

    Examples:
      edison assist improve --focus "shorter replies"
      edison assist improve support-reply --focus "quote the policy"
    """
    terminal, project, chosen = open_experiment(state, experiment, "assist improve")
    fewest, most = improvement.FOCUS
    focus = given["focus"].strip()
    if not fewest <= len(focus) <= most:
        raise UsageError(f"--focus has {len(focus):,} characters; {fewest} to {most} fit")
    target = candidate.target_of(project, chosen, given["prompt"])
    Assistance(
        terminal,
        project,
        drafter_of(state, project, given["by"]),
        improvement.improvement_kind(target),
        improvement.improvement_question(target, focus),
        lambda draft: [Option(draft.note, draft.text)],
        lambda option: draft_files.DraftFile(project, target.prompt.path, option.text),
        told={"experiment": chosen.id, "prompt": target.prompt.id},
        as_diff=True,
    ).settle(yes=given["yes"])


@assist.command(cls=EdisonCommand)
@click.argument("experiment", required=False)
@shared_options
@click.pass_obj
def models(state: CliState, /, experiment: str | None, **given: Any) -> None:
    """Propose 2 or 3 models for an experiment: fast, balanced and smart.

    Proposes models of models.yaml that can be called, models of vendors whose key is set, and an
    installed local model; none above $0.01 per 1K tokens, the mean of input and output. Those
    that models.yaml lacks are added to it.

    Examples:
      edison assist models
      edison assist models support-reply --yes
    """
    terminal, project, chosen = open_experiment(state, experiment, "assist models")
    reachable = candidates.reachable_models(project, "generate", without=_judging(project, chosen))
    _tell_left_out(terminal, reachable)

    def options(drafts: Sequence[ModelDraft]) -> list[Option]:
        made = model_sets.models_file(project, chosen, drafts)
        notes = tuple(
            f"{each.role}: {each.candidate.id} ({each.candidate.price}). {each.reason}"
            for each in drafts
        )
        others[made.text] = made.others
        return [Option(f"models of {chosen.id}", made.text, notes=notes)]

    others: dict[str, Mapping[str, str]] = {}
    Assistance(
        terminal,
        project,
        drafter_of(state, project, given["by"]),
        model_sets.models_kind(reachable),
        model_sets.models_question(objective_of(chosen), reachable),
        options,
        partial(_experiment_file, project, chosen, others),
        extension=".yaml",
        told={"experiment": chosen.id, **_left_out(reachable)},
        as_diff=True,
    ).settle(yes=given["yes"])


@assist.command(cls=EdisonCommand)
@click.argument("experiment", required=False)
@click.option("--try", "case", metavar="CASE", help="Show what each judge scores for this case.")
@shared_options
@click.pass_obj
def judges(state: CliState, /, experiment: str | None, **given: Any) -> None:
    """Propose the judges of an experiment.

    Proposes 1 to 5 models that score the rubric, how their scores are combined, and a model that
    compares answers by pairs, if that helps. A model that answers does not judge. With --try the
    stored answer to a case, or a new one, is scored by each of them before you decide.

    Examples:
      edison assist judges
      edison assist judges support-reply --try return-how
    """
    terminal, project, chosen = open_experiment(state, experiment, "assist judges")
    if chosen.rubric is None:
        hint = f"write one: edison assist rubric {chosen.id}"
        raise UsageError(f"{chosen.id} has no rubric that judges could score", hint=hint)
    case = None if given["case"] is None else selection.find_case(project, chosen, given["case"])
    answering = [model.name for _, model, _ in chosen.models]
    reachable = candidates.reachable_models(project, "judge", without=answering)
    _tell_left_out(terminal, reachable)

    def options(panel: PanelDraft) -> list[Option]:
        made = judge_panels.judges_file(project, chosen, panel)
        notes = [
            f"{each.candidate.id} ({each.candidate.price}). {each.reason}" for each in panel.judges
        ]
        notes += [f"combined by {panel.combine}"] if len(panel.judges) > 1 else []
        notes += [f"pairs by {panel.pairwise.id}"] if panel.pairwise is not None else []
        others[made.text] = made.others
        return [Option(f"judges of {chosen.id}", made.text, notes=tuple(notes))]

    others: dict[str, Mapping[str, str]] = {}
    Assistance(
        terminal,
        project,
        drafter_of(state, project, given["by"]),
        judge_panels.judges_kind(reachable),
        judge_panels.judges_question(objective_of(chosen), _criteria(chosen), reachable),
        options,
        partial(_experiment_file, project, chosen, others),
        extension=".yaml",
        told={"experiment": chosen.id, **_left_out(reachable)},
        as_diff=True,
        trial=None if case is None else partial(_try_judges, state, chosen.id, case.id),
    ).settle(yes=given["yes"])


@assist.command(cls=EdisonCommand)
@click.argument("experiment", required=False)
@shared_options
@click.pass_obj
def limits(state: CliState, /, experiment: str | None, **given: Any) -> None:
    """Propose stop rules, and the budget that follows from them.

    The model proposes when a loop stops; the budget and the limit of tokens are computed from the
    plan of that loop, with room for retries. A loop that would cost more than the budget of the
    project is not proposed.

    Examples:
      edison assist limits
      edison assist limits support-reply --yes
    """
    terminal, project, chosen = open_experiment(state, experiment, "assist limits")
    Assistance(
        terminal,
        project,
        drafter_of(state, project, given["by"]),
        stop_limits.limits_kind(project, chosen),
        stop_limits.limits_question(project, chosen),
        lambda draft: [
            Option(
                f"stop rules of {chosen.id}",
                stop_limits.limits_file(project, chosen, draft).text,
                notes=(draft.reason, draft.budget),
            )
        ],
        lambda option: draft_files.DraftFile(project, chosen.path, option.text),
        extension=".yaml",
        told={"experiment": chosen.id},
        as_diff=True,
    ).settle(yes=given["yes"])


def _experiment_file(
    project: Project,
    experiment: Experiment,
    others: Mapping[str, Mapping[str, str]],
    option: Option,
) -> draft_files.DraftFile:
    """Return the experiment as an option has it, with the files of the last proposal."""
    last = [*others.values()][-1]
    return draft_files.DraftFile(
        project, experiment.path, option.text, others.get(option.text, last)
    )


def _judging(project: Project, experiment: Experiment) -> set[str]:
    """Return the models that judge or refine and do not answer."""
    answering = {model.name for _, model, _ in experiment.models}
    return project.other_models_of(experiment) - answering


def _criteria(experiment: Experiment) -> list[str]:
    rubric = experiment.rubric
    return [f"{each.name}: {each.description}" for each in rubric.criteria] if rubric else []


def _tell_left_out(terminal: Terminal, reachable: ReachableModels) -> None:
    for note in reachable.notes():
        terminal.note(note)


def _left_out(reachable: ReachableModels) -> dict[str, Any]:
    return {
        "too_expensive": [*reachable.too_expensive],
        "without_price": [*reachable.without_price],
        "without_key": [*reachable.without_key],
    }


def _try_judges(
    state: CliState, experiment: str, case: str, made: draft_files.DraftFile
) -> TrialReport:
    """Score the answer to a case with the proposed judges."""
    project = made.changed()
    context = run_sessions.run_context(project, offline=state.offline)
    try:
        found = judge_panels.try_panel(project, project.experiment(experiment), case, context)
    except (CallError, standalone.NotAnswered) as error:
        raise CallFailed(str(error), hint="see: edison models test") from None
    simulated = {name for name, model in project.models.items() if model.simulated}

    def named(name: str) -> str:
        return f"{name} (simulated)" if name in simulated else name

    head = f"case {case}, answered by {named(found.model)}:"
    lines = [
        head,
        *(f"  {line}" for line in secrets.redacted(found.answer).splitlines()[:_ANSWER_LINES]),
    ]
    lines += [f"  not judged: {found.reason}"] if found.reason else []
    for judge in found.judges:
        lines.append(f"{named(judge.name)}: {score(judge.score)}")
        for each in judge.criteria:
            shown = each.missing or score(each.score)
            lines.append(f"  {each.criterion}: {shown}  {each.reason}".rstrip())
    return TrialReport({"tried": found.as_json()}, lines)
