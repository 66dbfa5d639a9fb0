"""Samples of production graded as separate runs, which no gate decides.

What needs an expected answer is left out, as there is none. A sample is a dataset in memory; its
questions are stored with the answers, and go with them when texts are removed.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from edison_ci import utc
from edison_ci._dataclass import dataclass
from edison_ci.access import site as sites
from edison_ci.api.sessions import run_outside_loop
from edison_ci.checks.language import language_of
from edison_ci.config import requirements
from edison_ci.config.experiment import DataLimits, DatasetEntry
from edison_ci.documents.files import OverlayTree
from edison_ci.errors import UsageError
from edison_ci.execute.existing_answers import ImportedAnswers, imported_variant
from edison_ci.execute.run_options import RunOptions
from edison_ci.execute.targets import RunTarget, refuse_missing
from edison_ci.features.monitor.production_calls import MODEL, dataset_rows, sample_of
from edison_ci.features.monitor.production_trend import last_sample
from edison_ci.numeric import counted
from edison_ci.plan.selection import EVERYTHING
from edison_ci.records import plain_text
from edison_ci.store import database
from edison_ci.store.runs import PRODUCTION

if TYPE_CHECKING:
    from edison_ci.api.evaluation import GradingRequest
    from edison_ci.api.sessions import SessionFactory
    from edison_ci.checks.options import Check
    from edison_ci.cli.terminal import Terminal
    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.prompt import Prompt
    from edison_ci.execute.run_options import RunOutcome
    from edison_ci.features.monitor.production_calls import ProductionCall, ProductionSample
    from edison_ci.records import Json

_SAMPLE = "production-sample.jsonl"
"""Name of the dataset of a sample, which is in no file."""
_LIMITS = DataLimits(max_rows=10_000, max_bytes=10**9)
_BLANK: dict[str, Json] = {"string": "", "number": 0, "boolean": False, "list": [], "object": {}}
"""Values of variables that production does not record."""
_EXPECTED = "expected"


@dataclass(frozen=True, slots=True)
class ProductionVariant:
    """An experiment as it grades answers of production."""

    prompt: Prompt
    checks: tuple[Check, ...]
    graders: tuple[Prompt, ...]
    left_out: tuple[tuple[str, str], ...]
    """Checks and graders that cannot be used, and what they need."""


def production_variant(experiment: Experiment, sample: ProductionSample) -> ProductionVariant:
    """Return what can be graded of a sample; raises UsageError if nothing can."""
    prompt = _prompt(experiment)
    variables = {name for call in sample.calls for name in call.inputs} | prompt.inputs.keys()
    checks, graders, left_out = [], [], []
    for check in experiment.file.checks:
        missing = needs_of(check) - variables
        if missing:
            left_out.append((check.name or check.check, ", ".join(sorted(missing))))
        else:
            checks.append(check)
    for grader in experiment.graders:
        expected = {_EXPECTED} if _EXPECTED in grader.where else set[str]()
        lacking = {*grader.required, *expected} - variables
        if lacking:
            left_out.append((str(grader.id), ", ".join(sorted(lacking))))
        else:
            graders.append(grader)
    if not checks and not graders and experiment.rubric is None:
        raise UsageError(
            f"no check of {experiment.id} can grade answers of production",
            hint="add a check, rubric or grader that needs no expected answer",
        )
    return ProductionVariant(prompt, tuple(checks), tuple(graders), tuple(left_out))


def _prompt(experiment: Experiment) -> Prompt:
    """Return the prompt that production uses."""
    path = experiment.file.production.prompt if experiment.file.production else None
    for prompt in experiment.prompts:
        if path in (None, prompt.path):
            return prompt
    raise UsageError(
        f"{experiment.id} has no prompt {path}", hint="name one of its prompts: production.prompt"
    )


def needs_of(check: Check) -> set[str]:
    """Return the variables that a check needs, such as an expected answer."""
    inner = [need for inner_check in check.inner_checks() for need in needs_of(inner_check)]
    own = [
        name
        for _, template in check.templates()
        for name, use in template.uses.items()
        if not use.optional
    ]
    return {*own, *inner}


def grade_production(
    project: Project,
    experiment: Experiment,
    sample: ProductionSample,
    request: GradingRequest,
    factory: SessionFactory,
) -> RunOutcome:
    """Grade a sample as a run."""
    variant = production_variant(experiment, sample)
    prompt = variant.prompt
    empty = {
        name: _BLANK[declared.type]
        for name, declared in prompt.inputs.items()
        if declared.default is None
    }
    calls = [call._replace(inputs={**empty, **call.inputs}) for call in sample.calls]
    text = dataset_rows(calls, {call.id: _language(call) for call in sample.calls})
    overlaid = replace(project, tree=OverlayTree(project.tree, _SAMPLE, text))
    target = RunTarget(
        overlaid,
        imported_variant(overlaid, _with_sample(experiment, variant), [MODEL], [prompt.id]),
    )
    refuse_missing([target], EVERYTHING, calls=requirements.GRADING)
    name = experiment.file.production.files if experiment.file.production else ""
    options = RunOptions(
        trigger=PRODUCTION,
        outputs=sample.origin(name, prompt.id),
        budget_microusd=request.budget_microusd,
        allow_code=request.allow_code,
        wait=request.wait,
    )
    now = utc.timestamp(utc.now())
    answers = {(str(prompt.id), MODEL, call.id, 0): call.settlement(now) for call in calls}
    graded = replace(factory, answers=ImportedAnswers(answers))
    with graded.session(target) as session:
        return run_outside_loop(partial(session.run, options))


def _with_sample(experiment: Experiment, variant: ProductionVariant) -> Experiment:
    """Return the experiment with the sample as its data, and without gates."""
    paths = {grader.path for grader in variant.graders}
    judges = experiment.file.judges
    kept = tuple(entry for entry in judges.graders if entry.prompt in paths)
    file = experiment.file.model_copy(
        update={
            "dataset": None,
            "datasets": (DatasetEntry(path=_SAMPLE, limits=_LIMITS),),
            "checks": variant.checks,
            "judges": judges.model_copy(update={"graders": kept}),
            "gates": (),
            "repeats": 1,
            "split": None,
        }
    )
    return replace(experiment, file=file, graders=variant.graders)


def _language(call: ProductionCall) -> str | None:
    return language_of(" ".join(plain_text(value) for value in call.inputs.values()))


def grade_new_sample(
    terminal: Terminal,
    project: Project,
    experiment: Experiment,
    request: GradingRequest,
    factory: SessionFactory,
) -> RunOutcome | None:
    """Grade a sample of the answers since the last one; None if there is no new answer."""
    sample = _sample(project, experiment)
    extent = f"{counted(sample.new, 'new answer')} in {counted(sample.files, 'file')}"
    if not sample.calls:
        terminal.note(f"{extent}: nothing to grade")
        return None
    terminal.note(f"{extent}: {counted(len(sample.calls), 'answer')} sampled")
    for name, needed in production_variant(experiment, sample).left_out:
        terminal.note(f"left out: {name}, which needs {needed}")
    ended = grade_production(project, experiment, sample, request, factory)
    site = sites.Site(project.root, project.file)
    after = {"run": ended.run_id, "answers": len(sample.calls), "new": sample.new}
    site.record(site.actor(), "import production", experiment.id, after=after)
    return ended


def _sample(project: Project, experiment: Experiment) -> ProductionSample:
    assert experiment.file.production is not None
    after, graded = "", frozenset[str]()
    results = project.root / project.file.results
    if results.exists():
        with closing(database.open_reader(results)) as reader:
            after, graded = last_sample(reader, experiment.id)
    return sample_of(project.tree, experiment.file.production, after=after, graded=graded)
