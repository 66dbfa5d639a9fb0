"""edison init --wizard: questions that make a project, with drafts at each step.

Each answer is saved before the next question, so that Ctrl-C or a closed terminal loses nothing.
Nothing of the project exists before the last answer.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci.api import sessions as run_sessions
from edison_ci.cli import sessions
from edison_ci.cli.terminal import ODD, StyledText, Terminal, simulated_label
from edison_ci.config import experiment as config_experiment
from edison_ci.errors import CallFailed, UsageError
from edison_ci.features.assist import (
    candidates,
    draft_dialog,
    draft_kinds,
    drafting,
    new_project,
    wizard_data,
)
from edison_ci.features.assist.draft_dialog import DraftStep, GoBack
from edison_ci.features.assist.draft_kinds import Proposal
from edison_ci.numeric import count_range, dollar_range, duration_range
from edison_ci.plan import plan as planning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from edison_ci.cli.options import CliState
    from edison_ci.config.load import Project
    from edison_ci.features.assist.candidates import ModelCandidate, ReachableModels
    from edison_ci.features.assist.draft_kinds import Proposals
    from edison_ci.features.assist.drafting import Draft, DraftTask
    from edison_ci.plan.plan import Plan
    from edison_ci.records import Json

_INPUT = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,49}")
_MOST_INPUTS = 10
_OBJECTIVES = 3
_CLASHES = ("edison.yaml", "models.yaml")


class Step(NamedTuple):
    """A step of the wizard."""

    title: str
    purpose: str
    settle: Callable[[], None]


class Wizard:
    """Asks for everything that a project needs."""

    def __init__(self, state: CliState, target: Path) -> None:
        self.state, self.target = state, target
        self.terminal = Terminal(state)
        self.questions = draft_dialog.Questions(self.terminal)
        self.saved = new_project.SavedDraft(target)
        self.draft = new_project.ProjectDraft(_project_name(target))
        self.steps = (
            Step("Objective", "What a good answer achieves; judges hold answers against it.",
                 self._objective),
            Step("Rubric", "The criteria that judges score, from 0 to 5, and their weights.",
                 self._rubric),
            Step("Prompt", "The first version of what is sent to a model; it improves later.",
                 self._prompt),
            Step("Data", "Cases to test with: the more they differ, the more a run can show.",
                 self._data),
            Step("Models", "The models that answer; two or three show what a better one is worth.",
                 self._models),
            Step("Judges and safety", "Who scores the answers, and what must not be in them.",
                 self._judges),
            Step("Stop rules", "When the improvement of the prompt ends, and what it may cost.",
                 self._limits),
        )  # fmt: skip

    def ask(self) -> bool | None:
        """Ask everything; return whether to run the project as well, None for later."""
        self._refuse()
        try:
            self._resume()
            self._ask_drafter()
            while True:
                if self.draft.step < len(self.steps):
                    self._settle(self.draft.step)
                    continue
                try:
                    return self._summary()
                except GoBack:
                    self._go(len(self.steps) - 1)
        except draft_dialog.Later:
            return None

    def _refuse(self) -> None:
        if not (sys.stdin.isatty() and sys.stdout.isatty()) or self.terminal.json:
            raise UsageError(
                "the wizard asks questions, which needs a terminal",
                hint="without one: edison init --template NAME, then edison assist objective, "
                "rubric, prompts, models, judges and limits, each with --yes, and "
                "edison dataset generate --yes",
            )
        if self.target.exists() and not self.target.is_dir():
            raise UsageError(f"{str(self.target)!r} is a file", hint="give the name of a folder")
        self.saved.refuse_links()
        for name in _CLASHES:
            if os.path.lexists(self.target / name):
                raise UsageError(
                    f"{name} is there already",
                    hint="give a new folder, or change the project with edison assist",
                )

    def _resume(self) -> None:
        earlier = self.saved.load()
        if earlier is None:
            if self.saved.exists():
                self.terminal.note("Your earlier answers cannot be read, so they are asked again.")
            self.terminal.note(
                f"{len(self.steps)} steps; Enter accepts, b goes back, q stops and keeps your "
                "answers. Nothing is created before the end."
            )
            return
        step = min(earlier.step, len(self.steps) - 1)
        title = self.steps[step].title
        self.terminal.note(f"Your answers are kept, up to step {step + 1}: {title}.")
        if self.questions.ask_one_of("Enter continues, n starts over", ("", "n")):
            self.saved.remove()
            self._keep()
        else:
            self.draft = earlier

    def _keep(self) -> None:
        self.saved.save(self.draft)

    def _go(self, step: int) -> None:
        self.draft.step = step
        self._keep()

    def _settle(self, number: int) -> None:
        step = self.steps[number]
        self.terminal.result()
        head = f"Step {number + 1} of {len(self.steps)}: {step.title}"
        self.terminal.result(StyledText(head, bold=True))
        self.terminal.result(step.purpose)
        self.terminal.result()
        try:
            step.settle()
        except GoBack:
            if number == 0:
                self.terminal.note("this is the first step")
            self._go(max(0, number - 1))
        else:
            self._go(number + 1)

    def _ask_drafter(self) -> None:
        """Ask which model drafts, if a real one can be reached."""
        if self.draft.drafter:
            return
        project, _ = self.saved.project(self.draft)
        reachable = self._reachable(project, "judge")
        real = [choice for choice in reachable.candidates if not choice.model.simulated]
        self.draft.drafter = new_project.SIMULATOR
        if real:
            self._choose_drafter(project, real)
        else:
            self.terminal.note(
                "Drafts are by the simulator, offline and free; with a key in the environment, "
                "such as OPENAI_API_KEY, a real model writes better ones."
            )
        self._keep()

    def _reachable(
        self, project: Project, what: str, without: Iterable[str] = ()
    ) -> ReachableModels:
        """Return the models that can be proposed; with --offline, none that needs a key."""
        environ = {} if self.state.offline else os.environ
        return candidates.reachable_models(project, what, without=without, environ=environ)

    def _choose_drafter(self, project: Project, real: Sequence[ModelCandidate]) -> None:
        usual = real[len(real) // 2]
        names = ", ".join(model.id for model in real)
        self.terminal.note(f"Models that can write the drafts: {names}")
        while True:
            question = f"Enter: {usual.id} ({usual.price}); s: the simulator, free; or a name"
            try:
                answer = self.questions.ask(question)
            except GoBack:
                continue
            if answer.lower() == "s":
                return
            chosen = next((model for model in real if model.id == (answer or usual.id)), None)
            if chosen is not None:
                self.draft.models = candidates.with_models(project, [chosen])["models.yaml"]
                self.draft.drafter = chosen.name
                return
            self.questions.wrong(f"{answer!r} is none of these")

    def _drafts(
        self,
        task: Callable[[], DraftTask[Proposals]],
        present: Callable[[Proposal], Proposal] = lambda proposal: proposal,
    ) -> Callable[[int], list[Proposal]]:
        """Return what drafts proposals, with their price; it raises EdisonError."""

        def drafts(number: int) -> list[Proposal]:
            draft = self._drafted(task(), number)
            by = (draft.model, draft.instructions)
            return [present(replace(proposal, by=by)) for proposal in draft.value]

        return drafts

    def _drafted(self, task: DraftTask[Proposals], number: int) -> Draft[Proposals]:
        project, _ = self.saved.project(self.draft)
        context = run_sessions.run_context(project, offline=self.state.offline)
        by = new_project.SIMULATOR if self.state.offline else None
        drafter = drafting.Drafter(project, drafting.assistant_of(project, by), context)
        job = drafting.DraftJob(drafter, task, number)
        if drafter.first.simulated:
            return drafter.draft(task, number)
        sessions.confirm_calls(self.terminal, project, [job.call], yes=False)
        try:
            draft = drafter.draft(task, number)
        except CallFailed as error:
            hint = "or stop with q, and continue with --offline: then the simulator drafts"
            raise CallFailed(error.message, hint=hint) from None
        instead = f" instead of {draft.instead_of}" if draft.instead_of else ""
        self.terminal.note(f"by {draft.model}{instead}; {draft.price}")
        return draft

    def _take(self, path: str, proposal: Proposal, **changed: Any) -> None:
        """Take a proposal if the project is valid with it; raises ConfigError."""
        tried = replace(self.draft, **changed)
        self.saved.project(tried)
        drafted = dict(self.draft.drafted)
        if proposal.by is not None:
            drafted[path] = [*proposal.by]
        else:
            drafted.pop(path, None)
        self.draft = replace(tried, drafted=drafted)
        self._keep()

    def _settle_draft(self, name: str, step: DraftStep, current: str) -> None:
        """Offer drafts; a text that was accepted before is shown first."""

        def redo() -> int:
            self.draft.redone[name] = self.draft.redone.get(name, 0) + 1
            self._keep()
            return self.draft.redone[name]

        kept = Proposal(current) if current else None
        if kept is not None:
            self.questions.show([kept])
        made = replace(step, redone=redo)
        self.questions.settle(made, kept, self.draft.redone.get(name, 0))

    def _objective(self) -> None:
        if not self.draft.hints:
            self._ask_hints()

        def task() -> DraftTask[Proposals]:
            return draft_kinds.objective_task(self.draft.hints, _OBJECTIVES)

        def accept(proposal: Proposal) -> None:
            text, (fewest, most) = " ".join(proposal.text.split()), draft_kinds.OBJECTIVE_LENGTHS
            if not fewest <= len(text) <= most:
                raise UsageError(
                    f"the objective has {len(text):,} characters; {fewest} to {most:,} fit"
                )
            self._take("objective", proposal, objective=text)

        def own() -> Proposal | None:
            text = self.questions.ask("Your objective, in one line")
            return Proposal(text) if text else None

        step = DraftStep(self._drafts(task), accept, own, ".txt")
        while True:
            try:
                self._settle_draft("objective", step, self.draft.objective)
            except GoBack:  # there is nothing before but the first question
                self._ask_hints()
                self.draft.objective = ""
            else:
                return

    def _ask_hints(self) -> None:
        fewest, most = draft_kinds.HINTS
        while True:
            usual = self.draft.hints
            more = " (Enter: as before)" if usual else ""
            answer = self.questions.ask(f"In a sentence, what should the prompt do?{more}", usual)
            if fewest <= len(answer) <= most:
                self.draft.hints = answer
                if not self.draft.rubric:
                    self.draft.rename(self.target)
                self._keep()
                self.terminal.result()
                return
            self.questions.wrong(f"{len(answer)} characters; {fewest} to {most} are needed")

    def _own_file(
        self, skeleton: Callable[[], str], extension: str
    ) -> Callable[[], Proposal | None]:
        def own() -> Proposal | None:
            edited = self.questions.edit(skeleton(), extension)
            return None if edited is None else Proposal(edited)

        return own

    def _rubric(self) -> None:
        path = f"rubrics/{self.draft.name}.yaml"
        drafts = self._drafts(
            lambda: draft_kinds.rubric_task(self.draft.objective, self.draft.name),
            lambda proposal: replace(proposal, text=new_project.with_threshold(proposal.text)),
        )

        def accept(proposal: Proposal) -> None:
            self._take(path, proposal, rubric=new_project.with_threshold(proposal.text))

        own = self._own_file(self.draft.rubric_skeleton, ".yaml")
        self._settle_draft("rubric", DraftStep(drafts, accept, own), self.draft.rubric)

    def _prompt(self) -> None:
        if not self.draft.inputs:
            self._ask_inputs()
        path = f"prompts/{self.draft.name}.md"

        def task() -> DraftTask[Proposals]:
            _, experiment = self.saved.project(self.draft)
            criteria = draft_kinds.criteria_of(experiment)
            return draft_kinds.prompts_task(self.draft.objective, criteria, self.draft.inputs)

        def accept(proposal: Proposal) -> None:
            tried = replace(self.draft, prompt=proposal.text, data="")
            _, experiment = self.saved.project(tried)
            lacking = {*self.draft.inputs} ^ {*experiment.prompts[0].inputs}
            if lacking:
                raise UsageError(
                    f"the inputs of the prompt differ: {', '.join(sorted(lacking))}",
                    hint=f"use {', '.join(f'{{{{ {name} }}}}' for name in self.draft.inputs)}",
                )
            self._take(path, proposal, prompt=proposal.text)

        own = self._own_file(lambda: self.draft.prompt_skeleton(), ".md")
        step = DraftStep(self._drafts(task), accept, own, ".md")
        while True:
            try:
                self._settle_draft("prompt", step, self.draft.prompt)
            except GoBack:  # to the question before, in the same step
                self._ask_inputs()
            else:
                return

    def _ask_inputs(self) -> None:
        while True:
            usual = ", ".join(self.draft.inputs) or "message"
            answer = self.questions.ask(
                f"What does the prompt get? Names, such as message, policy (Enter: {usual})", usual
            )
            names = [*dict.fromkeys(name.strip() for name in answer.split(",") if name.strip())]
            wrong = [name for name in names if not _INPUT.fullmatch(name)]
            if wrong:
                self.questions.wrong(f"{wrong[0]!r} is not a name of letters, digits and '_'")
            elif not names or len(names) > _MOST_INPUTS:
                self.questions.wrong(f"name 1 to {_MOST_INPUTS} inputs, separated by commas")
            else:
                if names != self.draft.inputs:  # neither prompt nor cases fit any more
                    self.draft = replace(self.draft, inputs=names, prompt="", data="", source="")
                self._keep()
                self.terminal.result()
                return

    def _data(self) -> None:
        wizard_data.CaseSource(
            self.state, self.questions, self.saved, self.draft, self._keep
        ).settle()

    def _settle_settings(
        self,
        step: str,
        drafts: Callable[[int], list[Proposal]],
        own: Callable[[], Proposal | None],
        reachable: ReachableModels | None = None,
    ) -> None:
        """Settle keys of the experiment; models that models.yaml lacks are added to it."""

        def accept(proposal: Proposal) -> None:
            settings = new_project.fragment_values(proposal.text)
            if unknown := [key for key in settings if key not in new_project.FRAGMENTS[step]]:
                raise UsageError(
                    f"{unknown[0]} is not decided here",
                    hint=f"keep {', '.join(new_project.FRAGMENTS[step])}",
                )
            fragments = {**self.draft.fragments, step: proposal.text.strip()}
            models = self.draft.models
            if reachable is not None:
                added = [model for model in reachable.candidates if _adds(settings, model)]
                project, _ = self.saved.project(self.draft)
                models = candidates.with_models(project, added).get("models.yaml", models)
            path = f"experiments/{self.draft.name}.yaml"
            self._take(f"{path}#{step}", proposal, fragments=fragments, models=models)

        self._settle_draft(step, DraftStep(drafts, accept, own), self.draft.fragments.get(step, ""))

    def _models(self) -> None:
        project, experiment = self.saved.project(self.draft)
        reachable = self._reachable(project, "generate", project.other_models_of(experiment))
        if not self.state.offline:
            for note in reachable.notes():
                self.terminal.note(note)
        drafts = self._drafts(
            lambda: draft_kinds.models_task(self.draft.objective, reachable),
            lambda proposal: _as_fragment(proposal, proposal.settings),
        )
        own = self._own_names("models", reachable, lambda names: {"models": names})
        self._settle_settings("models", drafts, own, reachable)

    def _judges(self) -> None:
        project, experiment = self.saved.project(self.draft)
        answering = [model.name for _, model, _ in experiment.models]
        reachable = self._reachable(project, "judge", answering)
        criteria = draft_kinds.criteria_of(experiment)
        safety = new_project.fragment_values(self.draft.fragment("judges")).get("safety")
        screens = "answers with secrets are blocked; personal data and jailbreaks flagged"
        drafts = self._drafts(
            lambda: draft_kinds.judges_task(self.draft.objective, criteria, reachable),
            lambda proposal: _as_fragment(
                replace(proposal, notes=(*proposal.summary, screens)),
                {**proposal.settings, "safety": safety},
            ),
        )
        own = self._own_names(
            "judges", reachable, lambda names: {"judges": {"pointwise": names}, "safety": safety}
        )
        self._settle_settings("judges", drafts, own, reachable)

    def _own_names(
        self,
        what: str,
        reachable: ReachableModels,
        settings: Callable[[list[Json]], dict[str, Json]],
    ) -> Callable[[], Proposal | None]:
        """Return what asks for names of models."""

        def own() -> Proposal | None:
            models = {model.id: model for model in reachable.candidates}
            answer = self.questions.ask(f"Names of {what}, of {', '.join(models)}")
            names = [*dict.fromkeys(name.strip() for name in answer.split(",") if name.strip())]
            wrong = [name for name in names if name not in models]
            if wrong or not names:
                self.questions.wrong(f"{wrong[0] if wrong else answer!r} is none of these")
                return None
            chosen = settings([models[name].name for name in names])
            return Proposal(new_project.fragment_text(chosen))

        return own

    def _limits(self) -> None:
        project, experiment = self.saved.project(self.draft)
        usual = new_project.fragment_values(self.draft.fragment("limits"))["stop"]
        assert isinstance(usual, dict), "stop is a map"

        def present(proposal: Proposal) -> Proposal:
            proposed = proposal.settings["stop"]
            assert isinstance(proposed, dict), "stop is a map"
            stop = {"budget_usd": usual.get("budget_usd", 1), **proposed}
            defaults = config_experiment.Stop().model_dump()
            changed = {name: value for name, value in stop.items() if defaults.get(name) != value}
            return _as_fragment(proposal, {"stop": changed})

        def own() -> Proposal | None:
            stop = dict(usual)
            for name, question in (
                ("max_iterations", "Iterations at most"),
                ("budget_usd", "Dollars at most"),
            ):
                answer = self.questions.ask(f"{question} (Enter: {stop.get(name)})")
                if not answer:
                    continue
                try:
                    stop[name] = float(answer) if name == "budget_usd" else int(answer)
                except ValueError:
                    self.questions.wrong(f"{answer!r} is not a number")
                    return None
            return Proposal(new_project.fragment_text({"stop": stop}))

        drafts = self._drafts(lambda: draft_kinds.limits_task(project, experiment), present)
        self._settle_settings("limits", drafts, own)

    def _summary(self) -> bool:
        """Show what will be created; return whether to run it. Raises GoBack."""
        project, experiment = self.saved.project(self.draft)
        run, loop = (
            planning.plan_run(project, experiment),
            planning.plan_run(project, experiment, loop=True),
        )
        terminal = self.terminal
        terminal.result()
        terminal.result(StyledText("Summary", bold=True), *simulated_label(run.simulated))
        folder = os.path.relpath(self.target)
        kind = " (generated)" if self.draft.data_kind == "synthetic" else ""
        rows = [
            ("experiment", f"{self.draft.name}, in {'this folder' if folder == '.' else folder}"),
            ("models", ", ".join(name for name, _, _ in experiment.models)),
            ("cases", f"{run.cases:,}{kind}, {run.holdout:,} held out to prove changes"),
            ("judges", ", ".join(judge.name for judge in experiment.judges)),
            ("iterations", f"{_iterations(loop)} in a loop that improves the prompt"),
            ("cost", f"a run {_cost(run)}, a loop {_cost(loop)}"),
            ("time", f"a run {_time(run)}, a loop {_time(loop)}"),
            (
                "gates",
                "no worse than the base by 10 points; at most "
                f"{self.draft.flips} newly failing, less fixed; 25% pass; 5% errors at most",
            ),
        ]
        terminal.table(rows, indent=2)
        for blocker in run.blockers:
            terminal.note(StyledText("before a run: ", ODD), blocker)
        terminal.result()
        question = "Enter creates and runs it, c only creates it, b goes back"
        return self.questions.ask_one_of(question, ("", "r", "c")) != "c"


def _as_fragment(proposal: Proposal, settings: Mapping[str, Json]) -> Proposal:
    """Return a proposal of settings as keys of the experiment, with what speaks for them."""
    text = new_project.fragment_text(settings)
    return replace(proposal, text=text, summary=(*proposal.notes, *text.splitlines()))


def _adds(settings: Mapping[str, Json], candidate: ModelCandidate) -> bool:
    """Whether settings name a model that is not in models.yaml."""
    judges = settings.get("judges")
    inner = judges if isinstance(judges, dict) else {}
    pairwise = inner.get("pairwise")
    named = [*_list(settings.get("models")), *_list(inner.get("pointwise"))]
    named += [pairwise.get("by")] if isinstance(pairwise, dict) else []
    return not candidate.listed and candidate.name in named


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _iterations(loop: Plan) -> str:
    return count_range(loop.iterations.low, loop.iterations.high)


def _cost(plan: Plan) -> str:
    cost = plan.cost_microusd
    return "unknown" if cost is None else dollar_range(cost.low, cost.high)


def _time(plan: Plan) -> str:
    return duration_range(plan.seconds.low, plan.seconds.high)


def _project_name(target: Path) -> str:
    words = re.findall(r"[A-Za-z0-9_-]+", target.resolve().name)
    return " ".join(words)[:100].strip(" -_") or "prompts"
