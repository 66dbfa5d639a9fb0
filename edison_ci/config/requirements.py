"""Requirements of runs that this installation, this machine or the project does not meet.

They are not checked when a project is loaded: reports and pages of stored results need none of
them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from edison_ci import extras
from edison_ci.config import service_paths
from edison_ci.config.experiment_rules import placed_checks
from edison_ci.errors import ConfigError, Location, Problem, Severity, UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

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
ALLOW_CODE = "pass --allow-code or set settings.allow_code"
_GGUF = b"GGUF"
"""First bytes of a file of weights."""


def missing(project: Project, experiment: Experiment, *, calls: Collection[Phase]) -> list[Problem]:
    """Return the unmet requirements for grading and for the given kinds of calls."""
    models = [model for _, model, _ in experiment.models] if "generate" in calls else []
    names = set[str | None]()
    if "judge" in calls:
        names.update(_graders(project, experiment))
    if "refine" in calls:
        names.add(experiment.file.refine.by or project.file.defaults.refiner)
    models += [model for name, model in project.models.items() if name in names]
    return [
        *missing_for_checks(experiment),
        *_missing_for_names(experiment),
        *missing_for_models(models),
    ]


def refuse(problems: Iterable[Problem]) -> None:
    """Raise ConfigError if there are problems."""
    unmet = list(problems)
    if unmet:
        raise ConfigError(unmet)


def missing_in(project: Project) -> list[Problem]:
    """Return the unmet requirements of all experiments of a project."""
    experiments = project.experiments.values()
    return [
        problem
        for experiment in experiments
        for problem in missing(project, experiment, calls=REFINEMENT)
    ]


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


def _missing_for_names(experiment: Experiment) -> Iterator[Problem]:
    """Yield the pipelines for names of people and places that cannot be loaded."""
    safety = experiment.file.safety
    places = ((safety.pii, ("safety", "pii")), (safety.inputs.pii, ("safety", "inputs", "pii")))
    for screen, path in places:
        if screen.names_by is None:
            continue
        pipeline = extras.Library(screen.names_by, extras.SPACY.extra, screen.names_by)
        if fault := extras.SPACY.fault():
            message, hint = f"spacy {fault}", f"install it: {extras.command_for(extras.SPACY)}"
        elif fault := pipeline.fault():
            message = f"the pipeline {screen.names_by} {fault}"
            hint = f"install it: python -m spacy download {screen.names_by}"
        else:
            continue
        where = experiment.document.locate((*path, "names_by"), key=True)
        yield Problem(where, "not-installed", f"names cannot be found: {message}", hint)


def missing_for_models(models: Iterable[Model]) -> Iterator[Problem]:
    """Yield the models that cannot be called."""
    for model in models:
        refusal = f"model {model.name!r} cannot be called"
        if model.provider == "local":
            yield from _missing_for_local(model, refusal)
        elif model.provider in THROUGH_LITELLM and (fault := extras.LITELLM.fault()):
            hint = f"install it: {extras.install_command(extras.LITELLM.extra)}"
            yield Problem(model.where, "not-installed", f"{refusal}: litellm {fault}", hint)


def _missing_for_local(model: Model, refusal: str) -> Iterator[Problem]:
    """Yield what a model in this process lacks: libraries, or its file."""
    needed = (
        [extras.XLLAMACPP] if model.options.get("file_env") else [extras.XLLAMACPP, extras.SMOLLM2]
    )
    lacking = [library for library in needed if library.fault()]
    if lacking:
        faults = ", ".join(f"{library.module} {library.fault()}" for library in lacking)
        hint = f"install it: {extras.command_for(*lacking)}"
        yield Problem(model.where, "not-installed", f"{refusal}: {faults}", hint)
        return
    try:
        weights_of(model)
    except UsageError as error:
        yield Problem(model.where, "model-file", f"{refusal}: {error.message}", error.hint)


def weights_of(model: Model, environ: Mapping[str, str] = os.environ) -> Path:
    """Return the file with the weights of a model in this process; raises UsageError.

    Files are named by variables of the machine only: what is loaded is read by code that trusts
    it, so a pull request may bring none.
    """
    name = model.options.get("file_env")
    if name is None:
        return extras.SMOLLM2.folder() / "SmolLM2-135M-Instruct.Q4_1.gguf"
    path = Path(environ.get(name, ""))
    hint = f"set {name} to the path of a .gguf file"
    if not environ.get(name):
        raise UsageError(f"the variable {name} is not set", hint=hint)
    try:
        with path.open("rb") as file:
            if file.read(len(_GGUF)) == _GGUF:
                return path.resolve()
    except OSError as error:
        raise UsageError(
            f"the file that {name} names cannot be read: {error.strerror}", hint=hint
        ) from None
    raise UsageError(f"the file that {name} names is not a GGUF file", hint=hint)


def _graders(project: Project, experiment: Experiment) -> Iterator[str | None]:
    """Yield the names of the models that judge, grade, embed, screen and compare answers."""
    file = experiment.file
    yield from (judge.name for judge in experiment.judges)
    yield from (grader.by or project.file.defaults.judge for grader in file.judges.graders)
    yield from experiment.embedders()
    if file.judges.pairwise is not None:
        yield file.judges.pairwise.by
    screens = (file.safety.moderation, file.safety.toxicity)
    yield from (screen.by for screen in screens if screen is not None and screen.action != "off")


def _unmet(check: Check) -> tuple[str, str]:
    """Return the unmet requirement of a check and a hint; empty texts if there is none."""
    faults = [f"{need.module} {fault}" for need in check.libraries if (fault := need.fault())]
    if faults:
        return ", ".join(faults), f"install it: {extras.install_command(check.libraries[0].extra)}"
    if check.check == "command":
        program = cast("Command", check).value[0]
        # A path is a file of the project, which a pull request takes from its base.
        if "/" not in program and extras.find_program(program) is None:
            return f"there is no program {program!r} here", "install it, or name another program"
    return "", ""


def without_price(project: Project, model: Model) -> list[str]:
    """Return that a model has no price; nothing if it has one."""
    if project.prices.price_of(model) is not None:
        return []
    return [f"the price of {model.name} is unknown: add price to models.yaml"]


def unset(project: Project, models: Iterable[Model]) -> list[str]:
    """Return the keys of models that are neither set nor sealed, and missing addresses, once."""
    needed: dict[str, list[str]] = {}
    addressed: dict[str, list[str]] = {}
    for model in models:
        for env in model.keys.values():
            if not project.has_key(env) and not project.has_identity(model):
                needed.setdefault(env, []).append(model.name)
        if model.base_url_env and not os.environ.get(model.base_url_env):
            addressed.setdefault(model.base_url_env, []).append(model.name)
    return [
        *(
            f"{env} is not set ({', '.join(names)} {'need' if names[1:] else 'needs'} it)"
            for env, names in needed.items()
        ),
        *(
            f"{env} is not set (the address of {', '.join(names)})"
            for env, names in addressed.items()
        ),
    ]


def untrusted(project: Project, models: Iterable[Model]) -> Iterator[tuple[Model, str]]:
    """Yield what models would send to addresses that are not trusted with it."""
    elsewhere = [model for model in models if model.base_url_env or model.service]
    addresses = [(model, service_paths.address_of(model, os.environ)) for model in elsewhere]
    called = [(model, address) for model, address in addresses if address]
    trust = service_paths.effective_trust(project) if called else project.trust
    for model, address in called:
        for env in model.keys.values() if model.base_url_env else ():
            if not project.trust.allows(env, address, model.provider):
                yield model, f"{env} may not go to the host in {model.base_url_env}"
        for refused in trust.header_refusals(model, address):
            yield model, f"{refused.message}: {refused.hint}"
        if (refusal := service_paths.path_refusal(model, address, trust)) is not None:
            yield model, f"{refusal[0]}: {refusal[1]}"


def refused_code(project: Project, experiment: Experiment) -> Iterator[str]:
    """Yield what an experiment runs of the repository, if the project does not allow it."""
    if project.file.settings.allow_code:
        return
    models = [model for _, model, _ in experiment.models]
    models += [project.models[name] for name in project.other_models_of(experiment)]
    code = {
        "a check": any(check.needs_code for check in experiment.file.checks),
        "a model": any(model.provider == "command" for model in models),
    }
    for what, needs in code.items():
        if needs:
            yield f"{what} runs code of the repository: {ALLOW_CODE}"


def run_notes(project: Project) -> Iterator[Problem]:
    """Yield what would refuse a run of each experiment here, which is no fault of its file.

    A price that is unknown is a warning of its own.
    """
    models: dict[str, Model] = {}
    for experiment in project.experiments.values():
        if experiment.file.archived:
            continue
        models |= {model.name: model for _, model, _ in experiment.models}
        models |= {name: project.models[name] for name in project.judging_models_of(experiment)}
        for reason in refused_code(project, experiment):
            yield _note(Location(experiment.path), reason)
    for reason in unset(project, models.values()):
        name = reason.partition(" ")[0]
        needing = (m for m in models.values() if name in (*m.keys.values(), m.base_url_env))
        yield _note(next(needing).where, reason)
    for model, reason in untrusted(project, models.values()):
        yield _note(model.where, reason)


def _note(where: Location, reason: str) -> Problem:
    what, _, hint = reason.partition(": ")
    return Problem(where, "not-ready", f"a run would be refused: {what}", hint, Severity.NOTE)
