"""Which calls would each model get, and how much would it read and write?"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Literal

from edison_ci.frozen import dataclass
from edison_ci.plan.estimate import TYPICAL_OUTPUT, ZERO, Load, Span, total
from edison_ci.plan.tokens import ESTIMATE, counter_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.models import Model
    from edison_ci.plan.survey import Survey

Rivals = Literal["models", "base", "nobody"]
"""Models against each other, head against base, or nothing: the base is in the head's plan."""
INSTRUCTIONS = 400
"""Tokens of what a judge or refiner is told beside the material."""
OUT_PER_CRITERION = Span(30, 60)
OUT_OF_GRADER = Span(5, 60)
OUT_OF_PAIRWISE = Span(20, 80)
OUT_OF_REFINER = Span(300, 900)


@dataclass(frozen=True, slots=True)
class Loads:
    """Works out the loads of one experiment from what the survey saw."""

    project: Project
    experiment: Experiment
    survey: Survey
    rivals: Rivals = "models"
    """What a pairwise judge compares."""

    def of_a_run(self) -> list[Load]:
        """Return the loads of evaluating every case once."""
        generating = list(self._generating())
        return [*generating, *self._grading(generating)]

    def of_a_loop(self, iterations: Span) -> list[Load]:
        """Return the loads of so many iterations, each of them a run and a refinement."""
        loads = [*self.of_a_run(), *self._refining()]
        return [dataclasses.replace(load, iterations=iterations) for load in loads]

    @property
    def cells(self) -> int:
        """Answers that are generated."""
        file = self.experiment.file
        usable = sum(self.survey.usable[prompt.id] for prompt in self.experiment.prompts)
        return usable * len(self.experiment.models) * file.draws

    def _generating(self) -> Iterator[Load]:
        draws = self.experiment.file.draws
        for index, (name, model, _) in enumerate(self.experiment.models):
            counter, calls, read, written = counter_for(model), 0, 0.0, ZERO
            for prompt in self.experiment.prompts:
                answers = self.survey.usable[prompt.id] * draws
                sent = self.experiment.configurations(prompt)[index].params
                calls += answers
                read += self.survey.input_tokens(prompt, counter) * draws
                written += TYPICAL_OUTPUT.at_most(float(sent.get("max_tokens", "inf"))).times(
                    answers
                )
            exact = counter.exact and not self.survey.sampled
            load = self._load("generate", model, calls, _flat(read), written)
            yield dataclasses.replace(load, name=name, exact_tokens=exact)

    def _grading(self, generating: list[Load]) -> Iterator[Load]:
        """Yield the loads of everyone who reads a question and its answer."""
        file, cells = self.experiment.file, self.cells
        questions = self._questions()
        answers = total(load.once_out for load in generating)
        reading = questions + answers
        if self.experiment.rubric is not None:
            criteria = self.experiment.rubric.criteria
            each = INSTRUCTIONS + sum(ESTIMATE.count(c.name + c.description) for c in criteria)
            read, out = reading + _flat(cells * each), OUT_PER_CRITERION.times(len(criteria))
            for judge in self.experiment.judges:
                yield self._load("judge", judge, cells, read, out.times(cells))
        for grader, use in zip(self.experiment.graders, file.judges.graders, strict=True):
            own = sum(ESTIMATE.count(section.template.source) for section in grader.sections)
            by = self.project.models[str(use.by or self.project.file.defaults.judge)]
            read = reading + _flat(cells * own)
            yield self._load("grade", by, cells, read, OUT_OF_GRADER.times(cells))
        yield from self._pairwise(questions, answers)
        for screen in (file.safety.moderation, file.safety.toxicity):
            if screen is not None and screen.action != "off":
                by = self.project.models[screen.by]
                yield self._load("safety", by, cells, reading, OUT_OF_GRADER.times(cells))

    def _pairwise(self, questions: Span, answers: Span) -> Iterator[Load]:
        """Yield the load of a judge that sees each pair of answers in both orders."""
        pairwise, models = self.experiment.file.judges.pairwise, len(self.experiment.models)
        if pairwise is None or self.rivals == "nobody":
            return
        pairs = models * (models - 1) // 2 if pairwise.all_pairs else models - 1
        if self.rivals == "base":
            pairs = models
        if not pairs:
            return
        calls = 2 * pairs * self.cells // models
        # A call reads the question once and two answers, each of average length.
        read = (questions + answers.times(2)).times(2 * pairs / models)
        read += _flat(calls * INSTRUCTIONS)
        by = self.project.models[pairwise.by]
        yield self._load("pairwise", by, calls, read, OUT_OF_PAIRWISE.times(calls))

    def _refining(self) -> Iterator[Load]:
        refine = self.experiment.file.refine
        model = self.project.models.get(refine.by or self.project.file.defaults.refiner or "")
        if model is None or not self.cells:
            return
        question = self._questions().times(1 / self.cells)
        read = (question + TYPICAL_OUTPUT).times(refine.examples) + _flat(INSTRUCTIONS)
        calls = refine.candidates
        yield self._load("refine", model, calls, read.times(calls), OUT_OF_REFINER.times(calls))

    def _questions(self) -> Span:
        """Return the tokens of the rendered prompts, once for each answer."""
        prompts = self.experiment.prompts
        each = sum(self.survey.input_tokens(prompt, ESTIMATE) for prompt in prompts)
        return _flat(each * len(self.experiment.models) * self.experiment.file.draws)

    def _load(self, phase: str, model: Model, calls: int, read: Span, written: Span) -> Load:
        price = self.project.prices.price_of(model)
        return Load(phase, model, model.name, price, calls, read, written)


def _flat(tokens: float) -> Span:
    return Span(tokens, tokens)
