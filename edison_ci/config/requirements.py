"""Requirements of a project that this installation does not meet, as problems with locations.

They are not checked when a project is loaded: reports and pages of stored results need none of
them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, cast

from edison_ci.config.rules import placed_checks
from edison_ci.errors import ConfigError, Problem
from edison_ci.extras import LITELLM, find_program, install_command

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from edison_ci.checks.code import Command
    from edison_ci.checks.options import Check
    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.models import Model

Phase = Literal["generate", "judge", "refine"]
GRADING: tuple[Phase, ...] = ("judge",)
RUN: tuple[Phase, ...] = ("generate", *GRADING)
REFINEMENT: tuple[Phase, ...] = (*RUN, "refine")
THROUGH_LITELLM = frozenset({"vertex", "bedrock", "litellm"})
"""Providers whose models are called through litellm."""


def missing(project: Project, experiment: Experiment, *, calls: Collection[Phase]) -> list[Problem]:
    """Return the unmet requirements for grading and for the given kinds of calls."""
    models = [model for _, model, _ in experiment.models] if "generate" in calls else []
    names = set[str | None]()
    if "judge" in calls:
        names.update(_graders(project, experiment))
    if "refine" in calls:
        names.add(experiment.file.refine.by or project.file.defaults.refiner)
    models += [model for name, model in project.models.items() if name in names]
    return [*missing_for_checks(experiment), *missing_for_models(models)]


def refuse(problems: Iterable[Problem]) -> None:
    """Raise ConfigError if there are problems."""
    found = list(problems)
    if found:
        raise ConfigError(found)


def missing_in(project: Project) -> list[Problem]:
    """Return the unmet requirements of all experiments of a project."""
    found = project.experiments.values()
    return [problem for each in found for problem in missing(project, each, calls=REFINEMENT)]


def missing_for_checks(experiment: Experiment) -> Iterator[Problem]:
    """Yield the checks that cannot be evaluated, including nested ones."""
    document = experiment.document
    for index, entry in enumerate(experiment.file.checks):
        for placed in placed_checks(entry, document, ("checks", index)):
            fault, hint = _unmet(placed.check)
            if fault:
                message = f"the check {placed.check.check} cannot be evaluated: {fault}"
                where = document.locate(placed.path, key=True)
                yield Problem(where, "not-installed", message, hint)


def missing_for_models(models: Iterable[Model]) -> Iterator[Problem]:
    """Yield the models that cannot be called."""
    for model in models:
        said = f"model {model.name!r} cannot be called"
        if model.provider == "local":
            hint = (
                "serve it with ollama or llama.cpp, and use provider: ollama or openai_compatible"
            )
            message = f"{said}: provider local does not work in this version"
            yield Problem(model.where, "not-available", message, hint)
        elif model.provider in THROUGH_LITELLM and (fault := LITELLM.fault()):
            hint = f"install it: {install_command(LITELLM.extra)}"
            yield Problem(model.where, "not-installed", f"{said}: litellm {fault}", hint)


def _graders(project: Project, experiment: Experiment) -> Iterator[str | None]:
    """Yield the names of the models that judge, grade, screen and compare answers."""
    file = experiment.file
    yield from (judge.name for judge in experiment.judges)
    yield from (grader.by or project.file.defaults.judge for grader in file.judges.graders)
    if file.judges.pairwise is not None:
        yield file.judges.pairwise.by
    screens = (file.safety.moderation, file.safety.toxicity)
    yield from (screen.by for screen in screens if screen is not None and screen.action != "off")


def _unmet(check: Check) -> tuple[str, str]:
    """Return the unmet requirement of a check and a hint; empty texts if there is none."""
    faults = [f"{need.module} {fault}" for need in check.needs if (fault := need.fault())]
    if faults:
        return ", ".join(faults), f"install it: {install_command(check.needs[0].extra)}"
    if check.check == "command":
        program = cast("Command", check).value[0]
        # A path is a file of the project, which a pull request takes from its base.
        if "/" not in program and find_program(program) is None:
            return f"there is no program {program!r} here", "install it, or name another program"
    return "", ""
