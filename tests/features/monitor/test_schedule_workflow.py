"""edison schedule sync: the workflow follows the schedules, and passes what the examples pass."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.opened import opened
from tests.timing import PATIENCE_S
from tests.workflow_checks import lint_workflows

if TYPE_CHECKING:
    from tests.conftest import Edison, Folder

pytestmark = pytest.mark.daily

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


@pytest.mark.nightly
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


@pytest.mark.nightly
def test_the_workflow_goes_when_nothing_is_scheduled(edison: Edison, project: Folder) -> None:
    edison(project, "schedule", "sync")
    for name in ("early", "late", "same"):
        edison(project, "schedule", "disable", name)
    assert edison(project, "schedule", "sync").out == (
        f"{WORKFLOW} removed: nothing is scheduled\n"
    )
    assert not (project.path / WORKFLOW).exists()
    assert "nothing is scheduled" in edison(project, "schedule", "sync").err


@pytest.mark.nightly
def test_it_passes_the_checks_that_the_examples_pass(edison: Edison, project: Folder) -> None:
    assert edison(project, "schedule", "sync").code == 0
    plain = project.read(WORKFLOW)
    project.write("edison.yaml", project.read("edison.yaml") + NOTIFICATIONS)
    assert edison(project, "schedule", "sync").code == 0
    assert project.read(WORKFLOW) != plain
    lint_workflows([project.path / WORKFLOW, project.write(f"plain/{WORKFLOW}", plain)])


NOTIFICATIONS = """\
notifications:
  - {name: chat, on: [alert, run_failed], webhook_env: CHAT_URL, format: slack}
  - {name: hook, on: [alert], webhook_env: HOOK_URL, secret_env: HOOK_SECRET}
  - {name: issues, on: [alert], github_issues: true}
  - name: mail
    on: [alert]
    smtp: {host_env: MAIL_HOST, from: a@example.org, to: [b@example.org]}
"""
SECRETS = ["CHAT_URL", "HOOK_URL", "HOOK_SECRET", "MAIL_HOST"]


@pytest.mark.nightly
def test_a_scheduled_run_can_tell_whom_the_notifications_name(
    edison: Edison, project: Folder
) -> None:
    edison(project, "schedule", "sync")
    before, own = project.read(WORKFLOW), project.read("edison.yaml")
    project.write("edison.yaml", own + NOTIFICATIONS)
    done = edison(project, "schedule", "sync")
    assert done.out == f"{WORKFLOW} was out of date: written for 3 schedules\n"
    assert [line for line in done.err.splitlines() if "gh secret set" in line] == [
        f"  gh secret set {name}" for name in SECRETS
    ]
    job = yaml.safe_load(project.read(WORKFLOW))["jobs"]["evaluate"]
    assert job["permissions"] == {"contents": "read", "issues": "write"}
    given = steps(project)["Evaluate"]["env"]
    assert [name for name in given if f"secrets.{name}" in given[name]] == SECRETS
    assert given["GITHUB_TOKEN"] == "${{ github.token }}"
    for name, step in steps(project).items():
        assert name == "Evaluate" or not set(SECRETS) & set(step.get("env", {}))
    again = json.loads(edison(project, "schedule", "sync", "--json").out)
    assert (again["change"], again["secrets"]) == ("unchanged", SECRETS)
    project.write("edison.yaml", own)
    edison(project, "schedule", "sync")
    assert project.read(WORKFLOW) == before


@pytest.mark.nightly
def test_a_workflow_that_is_out_of_date_is_told_and_not_written(
    edison: Edison, project: Folder
) -> None:
    missing = edison(project, "schedule", "sync", "--check")
    assert (missing.code, missing.out) == (2, "")
    assert f"{WORKFLOW} is out of date" in missing.err
    assert not (project.path / WORKFLOW).exists()
    edison(project, "schedule", "sync")
    before = project.read(WORKFLOW)
    current = edison(project, "schedule", "sync", "--check")
    assert (current.code, current.out) == (0, f"{WORKFLOW} is up to date\n")
    project.write("edison.yaml", project.read("edison.yaml") + NOTIFICATIONS)
    old = edison(project, "schedule", "sync", "--check")
    assert (old.code, "edison schedule sync" in old.err) == (2, True)
    assert project.read(WORKFLOW) == before


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
    project.write("edison.yaml", project.read("edison.yaml") + NOTIFICATIONS)
    told = edison(project, "init", "--github", "--workflow", "schedule")
    assert "  gh secret set CHAT_URL  notifications of scheduled runs need it\n" in told.err
    assert "17 5 * * 1" in project.read(WORKFLOW)
    assert "CHAT_URL: ${{ secrets.CHAT_URL }}" in project.read(WORKFLOW)
    assert "CHAT_URL" not in project.read(".github/workflows/edison.yml")
    project.edit("edison.yaml", "CHAT_URL", "OTHER_URL")
    assert edison(project, "schedule", "sync").code == 0
    assert "17 5 * * 1" not in project.read(WORKFLOW)


def test_no_schedule_is_left_out_because_its_file_is_broken(
    edison: Edison, project: Folder
) -> None:
    project.write("experiments/broken.yaml", "experiment: broken\n")
    done = edison(project, "schedule", "sync")
    assert done.code == 2
    assert "experiments/broken.yaml" in done.err
