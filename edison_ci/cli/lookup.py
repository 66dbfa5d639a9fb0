"""Lookup of the project, results, experiment and prompt that a command line names.

Results are opened read-only and read in one state, while runs continue to write.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING

from edison_ci.access import job
from edison_ci.access import site as sites
from edison_ci.cli.terminal import ODD, StyledText
from edison_ci.config import load, prices, project_files
from edison_ci.config import prompt as config_prompt
from edison_ci.documents import files, json_text, marks
from edison_ci.errors import ConfigError, Severity, UsageError
from edison_ci.sanitize import in_actions
from edison_ci.spelling import did_you_mean

_MOST_NAMED = 10

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence

    from edison_ci.access.site import Site
    from edison_ci.cli.options import CliState
    from edison_ci.cli.terminal import Terminal
    from edison_ci.config.cases import Units
    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.prompt import Prompt
    from edison_ci.errors import Problem
    from edison_ci.records import Case, Json
    from edison_ci.results.stored_runs import ProjectPlace, StoredRuns
    from edison_ci.store.runs import Run


def find_experiment(project: Project, name: str | None) -> Experiment:
    """Return the named experiment, or the only one; raises UsageError that names them."""
    if name is not None:
        return project.experiment(name)
    active = [entry for entry in project.experiments.values() if not entry.file.archived]
    if len(active) != 1:
        raise _which("experiment", [experiment.id for experiment in active])
    return active[0]


def _which(noun: str, names: Sequence[str]) -> UsageError:
    """Return the error about a name that may be left out only if there is one to choose from."""
    if not names:
        return UsageError(f"the project has no {noun}", hint=f"add one to the folder {noun}s")
    more = f", ... ({len(names) - _MOST_NAMED:,} more)" if len(names) > _MOST_NAMED else ""
    return UsageError(
        f"which {noun}? The project has {len(names):,}",
        hint=f"name one: {', '.join(names[:_MOST_NAMED])}{more}",
    )


def find_prompt(project: Project, name: str | None, folder: Path) -> Prompt:
    """Return a prompt by id or path, or the only one; raises UsageError with the names there are.

    Graders are not counted if there is one generator.
    """
    prompts = list(project.prompts.values())
    if name is None:
        generators = [prompt for prompt in prompts if prompt.header.type != "grader"] or prompts
        if len(generators) != 1:
            raise _which("prompt", [prompt.id for prompt in generators])
        return generators[0]
    place = Path(os.path.relpath((folder / name).resolve(), project.root)).as_posix()
    for path, prompt in project.prompts.items():
        if name == prompt.id or path in (name, place, f"{place}.md"):
            return prompt
    hint = did_you_mean(name, [prompt.id for prompt in prompts], label="prompts")
    raise UsageError(f"there is no prompt {name!r}", hint=hint)


def experiment_of(project: Project, prompt: Prompt, name: str | None) -> Experiment | None:
    """Return the named experiment, or the first that uses the prompt, if any."""

    def uses(experiment: Experiment) -> bool:
        return prompt.path in [p.path for p in (*experiment.prompts, *experiment.graders)]

    if name is None:
        return next((e for e in project.experiments.values() if uses(e)), None)
    chosen = project.experiment(name)
    if not uses(chosen):
        others = [e.id for e in project.experiments.values() if uses(e)]
        hint = f"these do: {', '.join(others)}" if others else "no experiment does"
        raise UsageError(f"experiment {name!r} does not use {prompt.path}", hint=hint)
    return chosen


def parse_variables(prompt: Prompt, assignments: tuple[str, ...]) -> dict[str, Json]:
    """Return the values of --set options, each of the type that the prompt declares."""
    values: dict[str, Json] = {}
    names = {
        *prompt.inputs,
        *(config_prompt.GRADER_VARIABLES if prompt.header.type == "grader" else ()),
    }
    for text in assignments:
        name, sign, value = text.partition("=")
        if not sign or not name:
            hint = 'write --set name="some text"'
            raise UsageError(f"--set {text!r} is not NAME=VALUE", hint=hint)
        if name not in names:
            hint = did_you_mean(name, names, label="it has") or "it has no variables"
            raise UsageError(f"{prompt.id} has no variable {name!r}", hint=hint)
        kind = prompt.inputs[name].type if name in prompt.inputs else "string"
        values[name] = value if kind == "string" else _typed(name, value, kind)
    return values


def _typed(name: str, text: str, kind: str) -> Json:
    hint = f"--set {name}=... takes a {kind} as JSON"
    try:
        value = json_text.parse_json(text)
    except marks.Fault as fault:
        raise UsageError(f"{name} is not JSON: {fault.message}", hint=hint) from None
    if not config_prompt.fits(value, kind):
        raise UsageError(f"{name} is not a {kind}", hint=hint)
    return value


def open_site(state: CliState) -> Site:
    """Open the project of the working folder by its edison.yaml alone; other files may be invalid.

    Raises ConfigError if that file is invalid.
    """
    return sites.open_site(state.enter_project(load.find_root(state.folder)))


def open_project(state: CliState, *names: str | None, to_report: bool = False) -> Project:
    """Load the project of the working folder; raises ConfigError if a file in use is invalid.

    With `names` of experiments only their files are in use, and those that all share; a name that
    is None stands for every experiment. Problems of other files become warnings of the project: a
    mistake in one experiment must not stop a command, or a schedule, of another.

    In a job for a proposal it is on the terms of its base. A command that only reports on runs
    works without them too, and then shows no texts.
    """
    root = state.enter_project(load.find_root(state.folder))
    project, problems = load.inspect_project(files.WorkingTree(root), root=root)
    errors = project_files.only_errors(problems)
    _audit_untrusted(root, errors)
    used = None if project is None or not names else _files_in_use(project, names)
    stopping = [problem for problem in errors if used is None or problem.where.file in used]
    if project is None or stopping:
        raise ConfigError(stopping)
    others = (dataclasses.replace(problem, severity=Severity.WARNING) for problem in errors)
    project = dataclasses.replace(project, warnings=(*project.warnings, *others))
    return job.on_base_terms(project, to_report=to_report)


def _files_in_use(project: Project, names: Sequence[str | None]) -> set[str] | None:
    """Return the files that the named experiments use; None if one of them cannot be read."""
    chosen = [name for name in names if name is not None]
    if len(chosen) < len(names):
        folder = project.file.paths.experiments
        read = {experiment.path for experiment in project.experiments.values()}
        written = (name for name in project.tree.names(folder) if name.endswith((".yaml", ".yml")))
        if not {f"{folder}/{name}" for name in written} <= read:
            return None
        chosen = [*project.experiments]
    if not project.experiments.keys() >= {*chosen}:
        return None
    shared = {*project_files.SHARED_FILES, project_files.SECRETS, prices.PROJECT_FILE}
    used = (project.files_of(project.experiments[name]) for name in chosen)
    return shared.union({project.file.paths.models}, *used)


def _audit_untrusted(root: Path, problems: Sequence[Problem]) -> None:
    if any(problem.code == "trust" for problem in problems):
        from edison_ci.access.site import audit_untrusted

        audit_untrusted(root, problems)


def refuse_texts_in_log(project: Project) -> Project:
    """Return the project; raises UsageError if it is private and this is the log of a job.

    For commands that exist to show texts. On a local terminal they show them.
    """
    if project.file.settings.private and in_actions():
        raise UsageError(
            "this project is private, and the log of a job is read elsewhere",
            hint="run the command on your own machine",
        )
    return project


def open_readable_project(state: CliState, terminal: Terminal) -> Project:
    """Load the project even if files other than edison.yaml are invalid; print a warning then.

    Commands that show stored results need edison.yaml only, which names the results file.
    """
    root = state.enter_project(load.find_root(state.folder))
    project, problems = load.inspect_project(files.WorkingTree(root), root=root)
    errors = project_files.only_errors(problems)
    if project is None:
        raise ConfigError(errors)
    if errors:
        more = f" (and {len(errors) - 1} more: edison validate)" if len(errors) > 1 else ""
        place = terminal.place(errors[0].where)
        terminal.note(StyledText("warning:", ODD), f" {place}: {errors[0].message}{more}")
        terminal.note("  stored results are shown without the contents of invalid files")
    return project


@contextlib.contextmanager
def results_of(project: ProjectPlace) -> Iterator[sqlite3.Connection]:
    """Open the results of a project read-only, in their current state."""
    # SQLite is not needed by commands that only look up files.
    from edison_ci.results.stored_runs import open_runs

    with open_runs(project) as runs:
        yield runs.connection


def cases_of(
    project: Project, experiment: Experiment, units: Units | None = None
) -> Iterator[Case]:
    """Yield the cases of an experiment; raises ConfigError at the end if a row is invalid.

    `units` gets the clusters of all cases, also of those that are not chosen.
    """
    if not experiment.file.data:
        return
    feed = project.cases(experiment)
    feed.units = units
    yield from feed
    if feed.problems:
        raise ConfigError(feed.problems)


def find_run_or_newest(terminal: Terminal, runs: StoredRuns, name: str | None) -> Run:
    """Return a run by id, `latest` or experiment; without a name the newest, and say which."""
    run = runs.find(name or "latest")
    if name is None:
        terminal.note(f"newest run: {run.id} of {run.experiment}")
    return run
