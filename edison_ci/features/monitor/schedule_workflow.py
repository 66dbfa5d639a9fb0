"""The workflow that starts scheduled runs on GitHub, written from the enabled schedules."""

from __future__ import annotations

import datetime as dt
import json
import re
from typing import TYPE_CHECKING, Literal, NamedTuple

from edison_ci.access.site import Role
from edison_ci.api.workflows import (
    FOLDER,
    FURTHER,
    WORKFLOWS,
    Variables,
    WorkflowChoice,
    github_files,
    notification_secrets,
    without_notifications,
    without_variables,
    workflows,
)
from edison_ci.config.cron import in_words, shortest_gap
from edison_ci.config.project_files import ProjectFiles
from edison_ci.documents.files import WorkingTree, place_in, replace_file
from edison_ci.errors import Location, UsageError
from edison_ci.features.monitor.schedules import read_experiment, read_schedules
from edison_ci.git.repository import Repository

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from edison_ci.access.site import Site
    from edison_ci.features.monitor.schedules import Scheduled

PATH = f"{WORKFLOWS}/{FURTHER['schedule']}"
_MARK = "# Written by `edison schedule sync` from the schedules of the experiments."
_NOT_EDITED = "# Do not edit it: change the schedules, and call that again.\n"
_SHORTEST = dt.timedelta(minutes=5)
_BUDGET_USD = 5.0
"""Budget of a run where neither its schedule nor its experiment has one."""
_BELOW_IN_STEP = "          "


class SyncResult(NamedTuple):
    """What was done with the workflow."""

    path: str
    """From the root of the repository."""
    change: Literal["written", "unchanged", "removed", "none"]
    schedules: tuple[Scheduled, ...] = ()
    also: tuple[str, ...] = ()
    """Files that it installs edison with, which were missing."""
    secrets: tuple[str, ...] = ()
    """Secrets of the repository that it passes on: keys of models, and what notifications name."""
    replaced: bool = False
    """Whether there was a workflow, which was out of date."""


class _DueTime(NamedTuple):
    """A cron with everything that is due by it."""

    cron: str
    names: tuple[str, ...]
    budget_usd: float


class _Workflow(NamedTuple):
    """The workflow as it is and as it should be."""

    target: Path
    top: Path
    """The root of the repository."""
    active: tuple[Scheduled, ...]
    before: str | None
    """None if there is no file."""
    wanted: str | None
    """None if nothing is scheduled."""
    secrets: tuple[str, ...]


def sync_workflow(site: Site) -> SyncResult:
    """Bring the workflow in step with the enabled schedules, with an audit row."""
    actor = site.require(Role.EDITOR, "schedule sync")
    workflow = _read(site)
    if workflow.wanted is None:
        if workflow.before is None:
            return SyncResult(PATH, "none")
        site.record(actor, "schedule sync", PATH, before="written")
        workflow.target.unlink()
        return SyncResult(PATH, "removed")
    also = tuple(_install_files(workflow.top))
    if workflow.before == workflow.wanted:
        return SyncResult(PATH, "unchanged", workflow.active, also, workflow.secrets)
    row = site.entry(
        actor, "schedule sync", PATH, after=[schedule.full_name for schedule in workflow.active]
    )
    site.replace(PATH, workflow.wanted, row, top=workflow.top)
    replaced = workflow.before is not None
    return SyncResult(PATH, "written", workflow.active, also, workflow.secrets, replaced)


def is_out_of_date(site: Site) -> bool:
    """Whether the workflow is missing or is not what `schedule sync` would write."""
    workflow = _read(site)
    return workflow.before != workflow.wanted


def _read(site: Site) -> _Workflow:
    """Return the workflow; raises UsageError if it is not ours, or cannot be written."""
    files = read_schedules(site)
    if files.broken:
        path, problem = files.broken[0]
        raise UsageError(
            f"{path} is not valid: {problem.message}",
            hint="fix it first, or its schedules would be left out",
            where=problem.where,
        )
    active = tuple(schedule for schedule in files.schedules if schedule.active)
    for schedule in active:
        _refuse_for_github(schedule)
    repository = Repository.find(site.root)
    top = repository.root if repository is not None else site.root
    target = place_in(top, PATH)
    choice = _choice(site, top)
    plain = dict(workflows(choice))[PATH].decode("utf-8")
    before = target.read_text("utf-8") if target.is_file() else None
    if before is not None and _MARK not in before and _bare(before) != _bare(plain):
        raise UsageError(
            f"{PATH} was not written by edison schedule sync, or was changed since",
            hint="move what is yours to another file, and remove it",
            where=Location(PATH),
        )
    needed = _with_schedules(plain, list(_due_times(site, active))) if active else None
    secrets = (*choice.variables.secrets, *notification_secrets(choice.notifications))
    return _Workflow(target, top, active, before, needed, tuple(dict.fromkeys(secrets)))


def _bare(text: str) -> str:
    """Return a workflow without what models and notifications name, which may have changed."""
    return without_variables(without_notifications(text))


def _refuse_for_github(schedule: Scheduled) -> None:
    cron, where = schedule.entry.cron, Location(schedule.path)
    gap = shortest_gap(cron)
    if gap is not None and gap < _SHORTEST:
        raise UsageError(
            f"{schedule.full_name} is due {in_words(cron)}; "
            "GitHub starts a schedule every 5 minutes at most",
            hint="make it due less often, or disable it here and use: edison schedule run",
            where=where,
        )
    weekdays = cron.split()[4]
    if re.search(r"[LW#]", re.sub("[A-Za-z]{3}", "", cron)) or "7" in weekdays:
        hint = "write 0 for Sunday" if "7" in weekdays else "name days by numbers"
        raise UsageError(
            f"GitHub does not understand the cron {cron!r} of {schedule.full_name}",
            hint=hint,
            where=where,
        )


def _install_files(top: Path) -> Iterator[str]:
    """Write the files that workflows install edison with, if they are not there."""
    if (top / FOLDER / "install.sh").exists():
        return
    for name, data in github_files(WorkflowChoice()):
        if name.startswith(f"{FOLDER}/"):
            replace_file(top, name, data)
            yield name


def _choice(site: Site, top: Path) -> WorkflowChoice:
    """Return the terms of the workflow that `edison init` writes."""
    folder = site.root.resolve().relative_to(top.resolve()).as_posix()
    files = ProjectFiles(WorkingTree(site.root))
    models = files.models(site.file.paths.models)
    return WorkflowChoice(
        ("schedule",),
        project=folder,
        variables=Variables.of(models.values(), files.secrets()),
        notifications=site.file.notifications,
    )


def _due_times(site: Site, active: Sequence[Scheduled]) -> Iterator[_DueTime]:
    tree = WorkingTree(site.root)
    crons = dict.fromkeys(" ".join(schedule.entry.cron.split()) for schedule in active)
    for cron in crons:
        due = [schedule for schedule in active if " ".join(schedule.entry.cron.split()) == cron]
        budgets: dict[str, float] = {}
        for schedule in due:
            file, _ = read_experiment(tree, schedule.path)
            own = file.stop.budget_usd if file is not None else None
            usd = schedule.entry.budget_usd or own or _BUDGET_USD
            budgets[schedule.experiment] = max(usd, budgets.get(schedule.experiment, 0.0))
        yield _DueTime(cron, tuple(budgets), sum(budgets.values()))


def _with_schedules(text: str, due: Sequence[_DueTime]) -> str:
    """Return the workflow of the examples with these times, each with its experiments."""
    _, _, body = text.partition("\n")
    crons = "".join(
        f"    - cron: {json.dumps(time.cron)} # {in_words(time.cron)}\n" for time in due
    )
    body = re.sub(r"(?m)^    - cron: .*\n", lambda _: crons, body, count=1)
    cases = "".join(
        f"{_BELOW_IN_STEP}  {json.dumps(time.cron)}) "
        f'names="{" ".join(time.names)}" budget={time.budget_usd:g} ;;\n'
        for time in due
    )
    choose = (
        "      - name: Choose the experiments # by the time that is due\n"
        "        id: due\n"
        "        env:\n"
        "          CRON: ${{ github.event.schedule }}\n"
        "        run: |\n"
        f'{_BELOW_IN_STEP}case "$CRON" in\n'
        f"{cases}"
        f'{_BELOW_IN_STEP}  *) echo "nothing is due by $CRON" >&2 && exit 1 ;;\n'
        f"{_BELOW_IN_STEP}esac\n"
        f"{_BELOW_IN_STEP}{{\n"
        f'{_BELOW_IN_STEP}  echo "experiments=$names"\n'
        f'{_BELOW_IN_STEP}  echo "budget=$budget"\n'
        f'{_BELOW_IN_STEP}}} >> "$GITHUB_OUTPUT"\n'
        "\n"
    )
    body = body.replace("      - name: Evaluate\n", f"{choose}      - name: Evaluate\n", 1)
    variables = (
        "          EDISON_GITHUB_RUN_EXPERIMENTS: ${{ steps.due.outputs.experiments }}\n"
        "          EDISON_GITHUB_RUN_BUDGET: ${{ steps.due.outputs.budget }} # dollars\n"
    )
    body = re.sub(r"(?m)^ +EDISON_GITHUB_RUN_BUDGET: .*\n", lambda _: variables, body, count=1)
    return f"{_MARK}\n{_NOT_EDITED}{body}"
