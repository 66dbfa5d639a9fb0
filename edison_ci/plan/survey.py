"""Calls of an experiment: a survey of its cases, and the loads of models that follow from it."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
from collections import Counter
from dataclasses import field
from typing import TYPE_CHECKING, Literal, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.config.case_facts import is_unverified
from edison_ci.config.cases import HoldoutCount
from edison_ci.config.experiment import Split
from edison_ci.config.repeated_inputs import RepeatedInputs
from edison_ci.config.tokens import ESTIMATE, TokenCounter, counter_for
from edison_ci.plan.estimate import TYPICAL_OUTPUT, ZERO, CostRange, Load, total
from edison_ci.plan.fingerprint import Fingerprint
from edison_ci.plan.selection import shard_of
from edison_ci.templating.templates import MissingValueError, RenderError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.models import Model
    from edison_ci.config.prompt import Prompt
    from edison_ci.records import Case


COUNT_EVERY = 5_000
"""Cases up to which every one is counted; beyond, one in a hundred."""


class CaseSurvey:
    """Reads every case once: its tokens, shard and split."""

    def __init__(
        self, project: Project, experiment: Experiment, *, shards: int = 0, refines: bool = False
    ) -> None:
        self._experiment, self._shard_count = experiment, shards
        # A refinement has a holdout even if the experiment has no split.
        self.holdout = HoldoutCount(experiment.file.split or (Split() if refines else None))
        self.fingerprint = Fingerprint(project, experiment)
        self.usable: Counter[str] = Counter()
        """Cases that each prompt can be rendered for."""
        self.cases = self.other_shards = self.unverified = 0
        self._shards: Counter[int] = Counter()
        self._counted: Counter[str] = Counter()
        self._tokens: Counter[tuple[str, str]] = Counter()
        self._counters = {counter_for(model) for _, model, _ in experiment.models} | {ESTIMATE}
        self._embedders = experiment.embedders()
        self._references: dict[tuple[str, str], int] = {}
        """Tokens of the references by the model that embeds them, and the hash of the text."""
        self._surveyed = 0
        self.repeated = RepeatedInputs(experiment.prompts)
        """Of all shards, so that a cluster has the same name in each."""

    def add(self, case: Case, *, here: bool = True) -> None:
        """Count a case; one of another shard only goes into the fingerprint."""
        self.fingerprint.feed(case)
        rendered = self.repeated.add(case)
        if not here:
            self.other_shards += 1
            return
        self.cases += 1
        self.unverified += is_unverified(case)
        self.holdout.add(case)
        if self._shard_count:
            self._shards[shard_of(case.id, self._shard_count)] += 1
        counting = self.cases <= COUNT_EVERY or self.cases % 100 == 0
        if counting:
            self._count_references(case)
        for prompt, texts in zip(self._experiment.prompts, rendered, strict=True):
            if texts is None:  # counted as skipped by the data check
                continue
            self.usable[prompt.id] += 1
            if counting:
                self._counted[prompt.id] += 1
                for counter in self._counters:
                    self._tokens[prompt.id, counter.method] += counter.of_messages(texts)

    def _count_references(self, case: Case) -> None:
        self._surveyed += 1
        for name, references in self._embedders.items():
            for reference in references:
                with contextlib.suppress(MissingValueError, RenderError):
                    text = reference.render(case.variables)
                    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
                    self._references[name, digest] = ESTIMATE.count(text)

    def references(self, embedder: str) -> tuple[int, float]:
        """Return the calls and tokens of embedding the references of the cases, each text once."""
        tokens = [count for (name, _), count in self._references.items() if name == embedder]
        share = self.cases / max(self._surveyed, 1)
        return round(len(tokens) * share), sum(tokens) * share

    def input_tokens(self, prompt: Prompt, counter: TokenCounter) -> float:
        """Return the input tokens of one answer to each usable case, tools and schema included."""
        counted = self._counted[prompt.id]
        if not counted:
            return 0.0
        tokens = self._tokens[prompt.id, counter.method] / counted
        for extra in (prompt.tools, prompt.output):
            if extra is not None:
                tokens += counter.count(json.dumps(extra, ensure_ascii=False))
        return tokens * self.usable[prompt.id]

    @property
    def skipped(self) -> int:
        """Cells of one repeat and model that cannot be rendered, over all prompts."""
        return self.cases * len(self._experiment.prompts) - self.usable.total()

    @property
    def sampled(self) -> bool:
        """Whether not every case was counted."""
        return self.cases > COUNT_EVERY

    def shards(self) -> list[int]:
        """Return how many cases each shard has."""
        return [self._shards[index] for index in range(1, self._shard_count + 1)]


Rivals = Literal["models", "base", "nobody"]
"""Models against each other, head against base, or nothing: the base is in the head's plan."""
INSTRUCTIONS = 400
"""Tokens of the instructions of a judge or refiner."""
OUT_PER_CRITERION = CostRange(30, 60)
OUT_OF_GRADER = CostRange(5, 60)
OUT_OF_PAIRWISE = CostRange(20, 80)
OUT_OF_REFINER = CostRange(300, 900)


class PastTokens(NamedTuple):
    """Tokens of one answer in earlier runs, from the 10th to the 90th percentile."""

    read: CostRange
    written: CostRange


@dataclass(frozen=True, slots=True)
class CallEstimator:
    """Computes the loads of one experiment from the survey of its cases."""

    project: Project
    experiment: Experiment
    survey: CaseSurvey
    rivals: Rivals = "models"
    """What a pairwise judge compares."""
    past: Mapping[tuple[str, str], PastTokens] = field(default_factory=dict)
    """Tokens of answers in earlier runs, by prompt and model; those of judges have no prompt."""

    def of_a_run(self) -> list[Load]:
        """Return the loads of evaluating every case once."""
        generating = list(self._generating())
        return [*generating, *self._grading(generating)]

    def of_a_loop(self, iterations: CostRange) -> list[Load]:
        """Return the loads of a number of iterations, each a run and a refinement."""
        loads = [*self.of_a_run(), *self._refining()]
        return [dataclasses.replace(load, iterations=iterations) for load in loads]

    @property
    def cells(self) -> int:
        """Answers that are generated."""
        file = self.experiment.file
        usable = sum(self.survey.usable[prompt.id] for prompt in self.experiment.prompts)
        return usable * len(self.experiment.models) * file.repeats

    def _generating(self) -> Iterator[Load]:
        repeats = self.experiment.file.repeats
        for index, (name, model, _) in enumerate(self.experiment.models):
            counter, calls, read, written = counter_for(model), 0, ZERO, ZERO
            for prompt in self.experiment.prompts:
                answers = self.survey.usable[prompt.id] * repeats
                sent = self.experiment.configurations(prompt)[index].params
                calls += answers
                past = self.past.get((prompt.id, name))
                if past is None:
                    read += _flat(self.survey.input_tokens(prompt, counter) * repeats)
                else:
                    read += past.read.times(answers)
                output = TYPICAL_OUTPUT if past is None else past.written
                written += output.at_most(float(sent.get("max_tokens", "inf"))).times(answers)
            exact = counter.exact and not self.survey.sampled
            load = self._load("generate", model, calls, read, written)
            yield dataclasses.replace(load, name=name, exact_tokens=exact)

    def _grading(self, generating: list[Load]) -> Iterator[Load]:
        """Yield the loads of everyone who reads a question and its answer."""
        file, cells = self.experiment.file, self.cells
        questions = self._questions()
        answers = total(load.once_out for load in generating)
        reading = questions + answers
        if self.experiment.rubric is not None:
            criteria = self.experiment.rubric.criteria
            instructions = INSTRUCTIONS + sum(
                ESTIMATE.count(c.name + c.description) for c in criteria
            )
            read, out = (
                reading + _flat(cells * instructions),
                OUT_PER_CRITERION.times(len(criteria)),
            )
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
        for name in self.experiment.embedders():
            calls, tokens = self.survey.references(name)
            by, read = self.project.models[name], answers + _flat(tokens)
            yield self._load("embed", by, cells + calls, read, ZERO)

    def _pairwise(self, questions: CostRange, answers: CostRange) -> Iterator[Load]:
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
        calls = refine.candidates * len(self.experiment.prompts)
        yield self._load("refine", model, calls, read.times(calls), OUT_OF_REFINER.times(calls))

    def _questions(self) -> CostRange:
        """Return the tokens of the rendered prompts, once for each answer."""
        prompts = self.experiment.prompts
        tokens = sum(self.survey.input_tokens(prompt, ESTIMATE) for prompt in prompts)
        return _flat(tokens * len(self.experiment.models) * self.experiment.file.repeats)

    def _load(
        self, phase: str, model: Model, calls: int, read: CostRange, written: CostRange
    ) -> Load:
        price = self.project.prices.price_of(model)
        past = self.past.get(("", model.name))
        if past is not None and phase not in ("generate", "refine"):
            read, written = past.read.times(calls), past.written.times(calls)
        return Load(phase, model, model.name, price, calls, read, written)


def _flat(tokens: float) -> CostRange:
    return CostRange(tokens, tokens)
