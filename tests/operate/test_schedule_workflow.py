"""edison schedule sync: the workflow follows the schedules, and passes what the examples pass."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.opened import opened
from tests.timing import PATIENCE_S

if TYPE_CHECKING:
    from tests.conftest import Edison, Folder

FILE = "experiments/hello.yaml"
WORKFLOW = ".github/workflows/edison-schedule.yml"
SCHEDULES = (
    "stop: {budget_usd: 3}\nschedule:\n"
    '  - {name: early, cron: "30 6 * * 1-5", budget_usd: 2}\n'
    '  - {name: late, cron: "0 */6 * * *"}\n'
    '  - {name: off, cron: "* * * * *", enabled: false}\n'
)


@pytest.fixture
def project(mini: Folder) -> Folder:
    mini.git("init", "--quiet")
    text = mini.read(FILE)
    mini.write("experiments/other.yaml", text.replace("experiment: hello", "experiment: other"))
    other = 'schedule: [{name: same, cron: "0  */6 * * *", budget_usd: 0.5}]\n'
    mini.write("experiments/other.yaml", mini.read("experiments/other.yaml") + other)
    mini.write(FILE, text + SCHEDULES)
    return mini


def steps(project: Folder) -> dict[str, Any]:
    found = yaml.safe_load(project.read(WORKFLOW))
    return {step["name"]: step for step in found["jobs"]["evaluate"]["steps"]}


def chosen(project: Folder, cron: str) -> subprocess.CompletedProcess[str]:
    """Run the step that chooses, as GitHub does for a time that is due."""
    output = project.path / "output"
    output.write_text("", encoding="utf-8")
    return subprocess.run(
        ["bash", "-e", "-c", steps(project)["Choose the experiments"]["run"]],
        env={"CRON": cron, "GITHUB_OUTPUT": str(output), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )


def test_the_workflow_has_every_time_once_and_the_time_decides(
    edison: Edison, project: Folder
) -> None:
    done = edison(project, "schedule", "sync")
    assert done.code == 0, done.all
    assert done.out == f"{WORKFLOW} written for 3 schedules\n"
    found = yaml.safe_load(project.read(WORKFLOW))
    assert found[True]["schedule"] == [{"cron": "30 6 * * 1-5"}, {"cron": "0 */6 * * *"}]
    assert found["permissions"] == {}
    assert found["jobs"]["evaluate"]["permissions"] == {"contents": "read"}
    given = steps(project)["Evaluate"]["env"]
    assert given["EDISON_GITHUB_RUN_EXPERIMENTS"] == "${{ steps.due.outputs.experiments }}"
    assert given["EDISON_GITHUB_RUN_BUDGET"] == "${{ steps.due.outputs.budget }}"
    assert chosen(project, "30 6 * * 1-5").returncode == 0
    assert project.read("output") == "experiments=hello\nbudget=2\n"
    assert chosen(project, "0 */6 * * *").returncode == 0
    assert project.read("output") == "experiments=hello other\nbudget=3.5\n"
    unknown = chosen(project, "1 1 1 1 1")
    assert (unknown.returncode, project.read("output")) == (1, "")
    assert "nothing is due by 1 1 1 1 1" in unknown.stderr
    assert (project.path / ".github/edison/install.sh").exists()


def test_a_second_call_changes_nothing_and_says_so(edison: Edison, project: Folder) -> None:
    edison(project, "schedule", "sync")
    before = project.read(WORKFLOW)
    again = edison(project, "schedule", "sync", "--json")
    assert json.loads(again.out)["change"] == "unchanged"
    assert project.read(WORKFLOW) == before
    assert edison(project, "schedule", "sync").out == f"{WORKFLOW} is up to date\n"
    with opened(project.path / ".edison/results.db") as connection:
        rows = connection.execute("select action, entity from audit").fetchall()
    assert rows == [("schedule sync", WORKFLOW)]


def test_the_workflow_goes_when_nothing_is_scheduled(edison: Edison, project: Folder) -> None:
    edison(project, "schedule", "sync")
    for name in ("early", "late", "same"):
        edison(project, "schedule", "disable", name)
    assert edison(project, "schedule", "sync").out == (
        f"{WORKFLOW} removed: nothing is scheduled\n"
    )
    assert not (project.path / WORKFLOW).exists()
    assert "nothing is scheduled" in edison(project, "schedule", "sync").err


def test_it_passes_the_checks_that_the_examples_pass(edison: Edison, project: Folder) -> None:
    assert edison(project, "schedule", "sync").code == 0
    tools = Path(sys.executable).parent
    for command in (
        [tools / "check-jsonschema", "--builtin-schema", "vendor.github-workflows"],
        [tools / "zizmor", "--offline", "--persona=pedantic", "--quiet"],
    ):
        done = subprocess.run(
            [*map(str, command), str(project.path / WORKFLOW)],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("cron", "said"),
    [
        ("*/2 * * * *", "hello/early is due every 2 minutes; GitHub starts a schedule every 5"),
        ("0 9 * * 7", "GitHub does not understand the cron '0 9 * * 7' of hello/early"),
        ("0 9 L * *", "GitHub does not understand the cron '0 9 L * *' of hello/early"),
        ("0 9 * * 1#2", "GitHub does not understand the cron '0 9 * * 1#2' of hello/early"),
    ],
)
def test_what_github_cannot_do_is_refused(
    edison: Edison, project: Folder, cron: str, said: str
) -> None:
    project.edit(FILE, "30 6 * * 1-5", cron)
    done = edison(project, "schedule", "sync")
    assert done.code == 2
    assert said in done.err
    assert not (project.path / WORKFLOW).exists()


def test_a_workflow_of_somebody_else_is_left_alone(edison: Edison, project: Folder) -> None:
    project.write(WORKFLOW, "on: push\n")
    done = edison(project, "schedule", "sync")
    assert done.code == 2
    assert "was not written by edison schedule sync" in done.err
    assert project.read(WORKFLOW) == "on: push\n"


def test_the_weekly_workflow_of_init_is_replaced(edison: Edison, project: Folder) -> None:
    edison(project, "init", "--github", "--workflow", "schedule")
    assert "17 5 * * 1" in project.read(WORKFLOW)
    assert edison(project, "schedule", "sync").code == 0
    assert "17 5 * * 1" not in project.read(WORKFLOW)


def test_no_schedule_is_left_out_because_its_file_is_broken(
    edison: Edison, project: Folder
) -> None:
    project.write("experiments/broken.yaml", "experiment: broken\n")
    done = edison(project, "schedule", "sync")
    assert done.code == 2
    assert "experiments/broken.yaml" in done.err
