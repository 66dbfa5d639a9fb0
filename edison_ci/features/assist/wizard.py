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
from edison_ci.cli import questions, sessions
from edison_ci.cli.terminal import ODD, StyledText, Terminal, simulated_label
from edison_ci.config import experiment as config_experiment
from edison_ci.errors import CallFailed, UsageError
from edison_ci.features.assist import (
    candidates,
    drafting,
    judge_panels,
    model_sets,
    new_project,
    objectives,
    prompts,
    rubrics,
    stop_limits,
    wizard_data,
)
from edison_ci.numeric import count_range, dollar_range, dollars, duration_range, fixed
from edison_ci.plan import plan as planning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from edison_ci.cli.options import CliState
    from edison_ci.config.load import Experiment, Project
    from edison_ci.features.assist.candidates import ModelCandidate, ReachableModels
    from edison_ci.features.assist.drafting import Draft, DraftKind, Question
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
        self.questions = questions.Questions(self.terminal)
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

    def ask(self) -> bool:
        """Ask everything; return whether the project is to be run as well. Raises Later."""
        self._refuse()
        self._resume()
        self._ask_drafter()
        while True:
            if self.draft.step < len(self.steps):
                self._settle(self.draft.step)
                continue
            try:
                return self._summary()
            except questions.GoBack:
                self._go(len(self.steps) - 1)

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
        found = self.saved.load()
        if found is None:
            if self.saved.exists():
                self.terminal.note("Your earlier answers cannot be read, so they are asked again.")
            self.terminal.note(
                f"{len(self.steps)} steps; Enter accepts, b goes back, q stops and keeps your "
                "answers. Nothing is created before the end."
            )
            return
        step = min(found.step, len(self.steps) - 1)
        title = self.steps[step].title
        self.terminal.note(f"Your answers are kept, up to step {step + 1}: {title}.")
        while True:
            said = self.questions.ask("Enter continues, n starts anew").lower()
            if said in ("", "n"):
                break
            self.questions.wrong(f"{said!r} is none of these")
        if said:
            self.saved.remove()
            self._keep()
        else:
            self.draft = found

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
        except questions.GoBack:
            if number == 0:
                self.terminal.note("this is the first step")
            self._go(max(0, number - 1))
        else:
            self._go(number + 1)

    # --- who drafts -------------------------------------------------------------------------------

    def _ask_drafter(self) -> None:
        """Ask which model drafts, if a real one can be reached."""
        if self.draft.drafter:
            return
        project, _ = self.saved.project(self.draft)
        reachable = self._reachable(project, "judge")
        real = [each for each in reachable.candidates if not each.model.simulated]
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
        names = ", ".join(each.id for each in real)
        self.terminal.note(f"Models that can write the drafts: {names}")
        while True:
            question = f"Enter: {usual.id} ({usual.price}); s: the simulator, free; or a name"
            try:
                said = self.questions.ask(question)
            except questions.GoBack:
                continue
            if said.lower() == "s":
                return
            chosen = next((each for each in real if each.id == (said or usual.id)), None)
            if chosen is not None:
                self.draft.models = candidates.with_models(project, [chosen])["models.yaml"]
                self.draft.drafter = chosen.name
                return
            self.questions.wrong(f"{said!r} is none of these")

    def _drafted(self, kind: DraftKind[Any], question: Question, number: int) -> Draft[Any]:
        """Return a draft, with its price; raises EdisonError."""
        project, _ = self.saved.project(self.draft)
        context = run_sessions.run_context(project, offline=self.state.offline)
        by = new_project.SIMULATOR if self.state.offline else None
        drafter = drafting.Drafter(project, drafting.assistant_of(project, by), context)
        first = drafter.models[0]
        if not first.simulated:
            request = drafter.request(first, kind, question, number)
            sessions.confirm_calls(self.terminal, project, [(first, request)], yes=False)
        try:
            draft = drafter.draft(kind, question, number)
        except CallFailed as error:
            if first.simulated:
                raise
            hint = "or stop with q, and continue with --offline: then the simulator drafts"
            raise CallFailed(error.message, hint=hint) from None
        if not first.simulated:
            instead = f" instead of {draft.instead_of}" if draft.instead_of else ""
            cost = dollars(draft.cost_microusd) if draft.bought else "stored, no cost"
            self.terminal.note(f"by {draft.model}{instead}; {cost}")
        return draft

    def _number(self, step: str) -> int:
        return self.draft.redone.get(step, 0)

    def _again(self, step: str) -> Callable[[], int]:
        def redo() -> int:
            self.draft.redone[step] = self._number(step) + 1
            self._keep()
            return self._number(step)

        return redo

    def _take(self, path: str, offer: questions.Offer, **changed: Any) -> None:
        """Take an answer if the project is valid with it; raises ConfigError."""
        tried = replace(self.draft, **changed)
        self.saved.project(tried)
        drafted = dict(self.draft.drafted)
        if offer.by is not None:
            drafted[path] = [*offer.by]
        else:
            drafted.pop(path, None)
        self.draft = replace(tried, drafted=drafted)
        self._keep()

    # --- objective, rubric and prompt -------------------------------------------------------------

    def _objective(self) -> None:
        if not self.draft.hints:
            self._ask_hints()

        def offers(number: int) -> list[questions.Offer]:
            question = objectives.objective_question(self.draft.hints, _OBJECTIVES, detail=False)
            found = self._drafted(objectives.objective_kind(_OBJECTIVES), question, number)
            return [
                questions.Offer(each.text, label=each.focus, by=(found.model, found.instructions))
                for each in found.value
            ]

        def accept(offer: questions.Offer) -> None:
            text, (fewest, most) = " ".join(offer.text.split()), objectives.LENGTHS
            if not fewest <= len(text) <= most:
                raise UsageError(
                    f"the objective has {len(text):,} characters; {fewest} to {most:,} fit"
                )
            self._take("objective", offer, objective=text)

        own = self._own_line("Your objective")
        while True:
            current = questions.Offer(self.draft.objective) if self.draft.objective else None
            try:
                self._offer("objective", questions.Offering(offers, accept, own), current)
            except questions.GoBack:  # there is nothing before but the first question
                self._ask_hints()
                self.draft.objective = ""
            else:
                return

    def _ask_hints(self) -> None:
        fewest, most = objectives.HINTS
        while True:
            usual = self.draft.hints
            more = " (Enter: as before)" if usual else ""
            said = self.questions.ask(f"In a sentence, what should the prompt do?{more}", usual)
            if fewest <= len(said) <= most:
                self.draft.hints = said
                if not self.draft.rubric:
                    self.draft.rename(self.target)
                self._keep()
                self.terminal.result()
                return
            self.questions.wrong(f"{len(said)} characters; {fewest} to {most} are needed")

    def _own_line(self, question: str) -> Callable[[], questions.Offer | None]:
        def own() -> questions.Offer | None:
            said = self.questions.ask(f"{question}, in one line")
            return questions.Offer(said) if said else None

        return own

    def _offer(
        self, step: str, offering: questions.Offering, current: questions.Offer | None
    ) -> None:
        """Offer drafts; what was accepted before is shown first."""
        if current is not None:
            self.questions.show([current])
        made = replace(offering, redone=self._again(step))
        self.questions.settle(made, current, self._number(step))

    def _own_file(
        self, skeleton: Callable[[], str], extension: str
    ) -> Callable[[], questions.Offer | None]:
        def own() -> questions.Offer | None:
            edited = self.questions.edit(skeleton(), extension)
            return None if edited is None else questions.Offer(edited)

        return own

    def _rubric(self) -> None:
        path = f"rubrics/{self.draft.name}.yaml"

        def offers(number: int) -> list[questions.Offer]:
            found = self._drafted(
                rubrics.RUBRIC, rubrics.rubric_question(self.draft.objective), number
            )
            text = new_project.with_threshold(rubrics.rubric_text(self.draft.name, found.value))
            lines = tuple(
                f"{each.name} {fixed(100 * each.weight)}%: {each.description}"
                for each in found.value
            )
            return [questions.Offer(text, lines, by=(found.model, found.instructions))]

        def accept(offer: questions.Offer) -> None:
            self._take(path, offer, rubric=new_project.with_threshold(offer.text))

        own = self._own_file(self.draft.rubric_skeleton, ".yaml")
        current = questions.Offer(self.draft.rubric) if self.draft.rubric else None
        self._offer("rubric", questions.Offering(offers, accept, own, ".yaml"), current)

    def _prompt(self) -> None:
        if not self.draft.inputs:
            self._ask_inputs()
        path = f"prompts/{self.draft.name}.md"

        def offers(number: int) -> list[questions.Offer]:
            _, experiment = self.saved.project(self.draft)
            inputs = self.draft.inputs
            question = prompts.prompt_question(
                self.draft.objective, _criteria(experiment), inputs, ()
            )
            found = self._drafted(prompts.prompt_kind(inputs), question, number)
            by = (found.model, found.instructions)
            return [
                questions.Offer(
                    each.text, label=f"{each.style}: {each.rationale}", name=each.style, by=by
                )
                for each in found.value
            ]

        def accept(offer: questions.Offer) -> None:
            tried = replace(self.draft, prompt=offer.text, data="")
            _, experiment = self.saved.project(tried)
            lacking = {*self.draft.inputs} ^ {*experiment.prompts[0].inputs}
            if lacking:
                raise UsageError(
                    f"the inputs of the prompt differ: {', '.join(sorted(lacking))}",
                    hint=f"use {', '.join(f'{{{{ {name} }}}}' for name in self.draft.inputs)}",
                )
            self._take(path, offer, prompt=offer.text)

        own = self._own_file(lambda: self.draft.prompt_skeleton(), ".md")
        while True:
            current = questions.Offer(self.draft.prompt) if self.draft.prompt else None
            try:
                self._offer("prompt", questions.Offering(offers, accept, own, ".md"), current)
            except questions.GoBack:  # to the question before, in the same step
                self._ask_inputs()
            else:
                return

    def _ask_inputs(self) -> None:
        while True:
            usual = ", ".join(self.draft.inputs) or "message"
            said = self.questions.ask(
                f"What does the prompt get? Names, such as message, policy (Enter: {usual})", usual
            )
            names = [*dict.fromkeys(name.strip() for name in said.split(",") if name.strip())]
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

    # --- models, judges and stop rules ------------------------------------------------------------

    def _fragment(
        self,
        step: str,
        values: Callable[[int], tuple[dict[str, Json], list[str], Draft[Any]]],
        own: Callable[[], questions.Offer | None],
        reachable: ReachableModels | None = None,
    ) -> None:
        """Settle keys of the experiment; models that models.yaml lacks are added to it."""

        def offers(number: int) -> list[questions.Offer]:
            given, lines, found = values(number)
            text = new_project.fragment_text(given)
            shown = (*lines, *text.splitlines())
            return [questions.Offer(text, shown, by=(found.model, found.instructions))]

        def accept(offer: questions.Offer) -> None:
            given = new_project.fragment_values(offer.text)
            if unknown := [key for key in given if key not in new_project.FRAGMENTS[step]]:
                raise UsageError(
                    f"{unknown[0]} is not decided here",
                    hint=f"keep {', '.join(new_project.FRAGMENTS[step])}",
                )
            fragments = {**self.draft.fragments, step: offer.text.strip()}
            models = self.draft.models
            if reachable is not None:
                added = [each for each in reachable.candidates if _names(given, each)]
                project, _ = self.saved.project(self.draft)
                models = candidates.with_models(project, added).get("models.yaml", models)
            path = f"experiments/{self.draft.name}.yaml"
            self._take(f"{path}#{step}", offer, fragments=fragments, models=models)

        kept = self.draft.fragments.get(step)
        current = questions.Offer(kept) if kept else None
        self._offer(step, questions.Offering(offers, accept, own, ".yaml"), current)

    def _models(self) -> None:
        project, experiment = self.saved.project(self.draft)
        reachable = self._reachable(project, "generate", project.other_models_of(experiment))
        if not self.state.offline:
            for note in reachable.notes():
                self.terminal.note(note)

        def values(number: int) -> tuple[dict[str, Json], list[str], Draft[Any]]:
            question = model_sets.models_question(self.draft.objective, reachable)
            found = self._drafted(model_sets.models_kind(reachable), question, number)
            lines = [
                f"{each.role}: {each.candidate.id} ({each.candidate.price}). {each.reason}"
                for each in found.value
            ]
            names: list[Json] = [each.candidate.name for each in found.value]
            return {"models": names}, lines, found

        own = self._own_names("models", reachable, lambda names: {"models": names})
        self._fragment("models", values, own, reachable)

    def _judges(self) -> None:
        project, experiment = self.saved.project(self.draft)
        answering = [model.name for _, model, _ in experiment.models]
        reachable = self._reachable(project, "judge", answering)
        safety = new_project.fragment_values(self.draft.fragment("judges")).get("safety")

        def values(number: int) -> tuple[dict[str, Json], list[str], Draft[Any]]:
            question = judge_panels.judges_question(
                self.draft.objective, _criteria(experiment), reachable
            )
            found = self._drafted(judge_panels.judges_kind(reachable), question, number)
            panel = found.value
            lines = [
                f"{each.candidate.id} ({each.candidate.price}). {each.reason}"
                for each in panel.judges
            ]
            lines.append("answers with secrets are blocked; personal data and jailbreaks flagged")
            judges: dict[str, Json] = {"pointwise": [each.candidate.name for each in panel.judges]}
            if panel.combine != "mean":
                judges["combine"] = panel.combine
            if panel.pairwise is not None:
                judges["pairwise"] = {"by": panel.pairwise.name}
            return {"judges": judges, "safety": safety}, lines, found

        own = self._own_names(
            "judges",
            reachable,
            lambda names: {"judges": {"pointwise": names}, "safety": safety},
        )
        self._fragment("judges", values, own, reachable)

    def _own_names(
        self,
        what: str,
        reachable: ReachableModels,
        made: Callable[[list[Json]], dict[str, Json]],
    ) -> Callable[[], questions.Offer | None]:
        """Return what asks for names of models."""

        def own() -> questions.Offer | None:
            known = {each.id: each for each in reachable.candidates}
            said = self.questions.ask(f"Names of {what}, of {', '.join(known)}")
            names = [*dict.fromkeys(name.strip() for name in said.split(",") if name.strip())]
            wrong = [name for name in names if name not in known]
            if wrong or not names:
                self.questions.wrong(f"{wrong[0] if wrong else said!r} is none of these")
                return None
            return questions.Offer(
                new_project.fragment_text(made([known[name].name for name in names]))
            )

        return own

    def _limits(self) -> None:
        project, experiment = self.saved.project(self.draft)
        usual = new_project.fragment_values(self.draft.fragment("limits"))["stop"]
        assert isinstance(usual, dict), "stop is a map"

        def values(number: int) -> tuple[dict[str, Json], list[str], Draft[Any]]:
            found = self._drafted(
                stop_limits.limits_kind(project, experiment),
                stop_limits.limits_question(project, experiment),
                number,
            )
            stop = {"budget_usd": usual.get("budget_usd", 1), **found.value.stop}
            known = config_experiment.Stop().model_dump()
            told = {name: value for name, value in stop.items() if known.get(name) != value}
            return {"stop": told}, [found.value.reason, found.value.budget], found

        def own() -> questions.Offer | None:
            stop = dict(usual)
            for name, question in (
                ("max_iterations", "Iterations at most"),
                ("budget_usd", "Dollars at most"),
            ):
                said = self.questions.ask(f"{question} (Enter: {stop.get(name)})")
                if not said:
                    continue
                try:
                    stop[name] = float(said) if name == "budget_usd" else int(said)
                except ValueError:
                    self.questions.wrong(f"{said!r} is not a number")
                    return None
            return questions.Offer(new_project.fragment_text({"stop": stop}))

        self._fragment("limits", values, own)

    # --- the end ----------------------------------------------------------------------------------

    def _summary(self) -> bool:
        """Show what is created; return whether it is to be run. Raises GoBack."""
        project, experiment = self.saved.project(self.draft)
        run, loop = (
            planning.plan_run(project, experiment),
            planning.plan_run(project, experiment, loop=True),
        )
        terminal = self.terminal
        terminal.result()
        terminal.result(StyledText("Summary", bold=True), *simulated_label(run.simulated))
        shown = os.path.relpath(self.target)
        kind = " (generated)" if self.draft.data_kind == "synthetic" else ""
        rows = [
            ("experiment", f"{self.draft.name}, in {'this folder' if shown == '.' else shown}"),
            ("models", ", ".join(name for name, _, _ in experiment.models)),
            ("cases", f"{run.cases:,}{kind}, {run.holdout:,} held out to prove changes"),
            ("judges", ", ".join(judge.name for judge in experiment.judges)),
            ("iterations", f"{_iterations(loop)} in a loop that improves the prompt"),
            ("cost", f"a run {_cost(run)}, a loop {_cost(loop)}"),
            ("time", f"a run {_time(run)}, a loop {_time(loop)}"),
            ("gates", "no worse than the base by 10 points; 25% pass; 5% errors at most"),
        ]
        terminal.table(rows, indent=2)
        for blocker in run.blockers:
            terminal.note(StyledText("before a run: ", ODD), blocker)
        terminal.result()
        while True:
            said = self.questions.ask("Enter creates and runs it, c only creates it, b goes back")
            if said.lower() in ("", "r", "c"):
                return said.lower() != "c"
            self.questions.wrong(f"{said!r} is none of these")


def _names(given: dict[str, Json], candidate: ModelCandidate) -> bool:
    """Whether a fragment names a model that is not in models.yaml."""
    judges = given.get("judges")
    inner = judges if isinstance(judges, dict) else {}
    pairwise = inner.get("pairwise")
    named = [*_list(given.get("models")), *_list(inner.get("pointwise"))]
    named += [pairwise.get("by")] if isinstance(pairwise, dict) else []
    return not candidate.listed and candidate.name in named


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _criteria(experiment: Experiment) -> list[str]:
    rubric = experiment.rubric
    return [f"{each.name}: {each.description}" for each in rubric.criteria] if rubric else []


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
