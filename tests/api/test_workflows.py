"""What `edison init --github` writes: workflows like the examples, and edison as one wheel."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import re
import subprocess
import sys
import zipfile
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import pytest
import yaml

import edison_ci
from edison_ci.api.workflows import (
    FURTHER,
    Variables,
    WorkflowChoice,
    build_wheel,
    github_files,
    notification_secrets,
    with_notifications,
    with_variables,
    workflows,
)
from edison_ci.config.sections import Notification
from tests.conftest import EXAMPLES, ROOT
from tests.timing import PATIENCE_S
from tests.workflow_checks import lint_workflows

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.daily

ACTIONS = {
    "actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1",
    "actions/cache/restore@27d5ce7f107fe9357f9df03efb73ab90386fccae # v5.0.5",
    "actions/cache/save@27d5ce7f107fe9357f9df03efb73ab90386fccae # v5.0.5",
    "actions/upload-artifact@bbbca2ddaa5d8feaa63e36b76fdaad77386f024f # v7.0.0",
    "actions/download-artifact@3e5f45b2cfb9172054b4087a40e8e0b5a5461e7c # v8.0.1",
}
"""The only code of others that the workflows run, by commit."""


ONE_KEY = Variables(("OPENAI_API_KEY",))
ALL = WorkflowChoice(tuple(FURTHER), variables=ONE_KEY)


def written(choice: WorkflowChoice) -> dict[str, bytes]:
    """Return the workflows by file name."""
    return {name.rpartition("/")[2]: data for name, data in workflows(choice)}


def test_the_workflows_are_those_of_the_examples() -> None:
    shipped = {path.name: path.read_bytes() for path in (EXAMPLES / "workflows").iterdir()}
    in_batches = shipped.pop("edison-batch.yml")
    assert written(ALL) == shipped
    assert len(shipped) == 8
    assert written(replace(ALL, batch=True)) == {**shipped, "edison.yml": in_batches}


def test_only_the_workflow_for_pull_requests_is_written_unless_others_are_named() -> None:
    assert list(written(WorkflowChoice())) == ["edison.yml"]
    assert list(written(WorkflowChoice(batch=True))) == ["edison.yml"]
    assert list(written(WorkflowChoice(("refine",)))) == ["edison.yml", "edison-refine.yml"]
    for data in written(WorkflowChoice(tuple(set(FURTHER) - {"schedule"}))).values():
        assert "schedule" not in yaml.safe_load(data)[True], "nothing spends money unasked"


CALLS = re.compile(r"edison. (github run|refine)")
MODELS = Variables(("OPENAI_API_KEY", "ANTHROPIC_API_KEY"), ("SERVER_URL",))


@pytest.mark.parametrize("batch", [False, True])
def test_every_step_that_calls_models_gets_the_keys_that_they_name_and_no_other(
    batch: bool,
) -> None:
    for variables in (Variables(), ONE_KEY, MODELS):
        for name, data in written(replace(ALL, batch=batch, variables=variables)).items():
            steps = [s for job in yaml.safe_load(data)["jobs"].values() for s in job["steps"]]
            calling = [
                s for s in steps if re.search(r"edison. (github run|refine)", s.get("run", ""))
            ]
            without = ("edison-fork-comment.yml", "edison-approvals.yml")
            assert bool(calling) == (name not in without), name
            for step in calling:
                got = {key: value for key, value in step["env"].items() if key in str(MODELS)}
                assert got == {
                    **{key: f"${{{{ secrets.{key} }}}}" for key in variables.secrets},
                    **{key: f"${{{{ vars.{key} }}}}" for key in variables.plain},
                }
            assert data.count(b"secrets.OPENAI_API_KEY") == len(calling) * bool(variables.secrets)


@pytest.mark.nightly
def test_what_is_written_passes_the_checks_that_the_examples_pass(tmp_path: Path) -> None:
    files = []
    told = tuple(Notification.model_validate(each) for each in NOTIFICATIONS)
    choices = product((False, True), ((Variables(), ()), (MODELS, told)))
    for number, (batch, (variables, notifications)) in enumerate(choices):
        choice = replace(ALL, batch=batch, project="a b", branch="trunk")
        chosen = replace(choice, variables=variables, notifications=notifications)
        for name, data in written(chosen).items():
            path = tmp_path / str(number) / ".github" / "workflows" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            files.append(path)
    lint_workflows(files)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("good", "bad"),
    [
        ("timeout-minutes: 60", "timeout-minutes: sixty"),
        ("contents: read", "contents: writ"),
        ("${{ env.PROJECT }}", "${{ env.PROJECT"),
        ('exec "$RUNNER_TEMP/edison-ci/edison" github run\n', "echo ${{ github.head_ref }}\n"),
    ],
)
def test_a_mistake_is_found_by_these_checks(tmp_path: Path, good: str, bad: str) -> None:
    text = written(ALL)["edison-schedule.yml"].decode()
    assert good in text
    path = tmp_path / "wrong.yml"
    path.write_text(text.replace(good, bad, 1), encoding="utf-8")
    with pytest.raises(AssertionError):
        lint_workflows([path])


NOTIFICATIONS = [
    {"name": "chat", "on": ["alert"], "webhook_env": "CHAT_URL", "format": "slack"},
    {"name": "hook", "on": ["run_failed"], "webhook_env": "HOOK_URL", "secret_env": "HOOK_SECRET"},
    {
        "name": "mail",
        "on": ["alert"],
        "smtp": {
            "host_env": "MAIL_HOST",
            "from": "edison@example.org",
            "to": ["team@example.org"],
            "user_env": "MAIL_USER",
            "password_env": "MAIL_PASSWORD",
        },
    },
    {"name": "issues", "on": ["alert"], "github_issues": True},
]
SECRETS = ["CHAT_URL", "HOOK_URL", "HOOK_SECRET", "MAIL_HOST", "MAIL_USER", "MAIL_PASSWORD"]


def test_only_scheduled_runs_may_tell_and_only_those_whom_notifications_name() -> None:
    told = tuple(Notification.model_validate(each) for each in NOTIFICATIONS)
    before = written(ALL)
    for recipients in (told, told[:1], told[3:]):
        after = written(replace(ALL, notifications=recipients))
        assert [name for name in after if after[name] != before[name]] == ["edison-schedule.yml"]
        (job,) = yaml.safe_load(after["edison-schedule.yml"])["jobs"].values()
        issues = any(one.github_issues for one in recipients)
        assert job["permissions"] == {
            "contents": "read",
            **({"issues": "write"} if issues else {}),
        }
        old = yaml.safe_load(before["edison-schedule.yml"])["jobs"]["evaluate"]["steps"]
        for step, was in zip(job["steps"], old, strict=True):
            more = {
                name: value
                for name, value in step.get("env", {}).items()
                if name not in was.get("env", {})
            }
            expected = {
                name: f"${{{{ secrets.{name} }}}}" for name in notification_secrets(recipients)
            }
            if issues:
                expected["GITHUB_TOKEN"] = "${{ github.token }}"
            assert more == (expected if step["name"] == "Evaluate" else {})
    assert list(notification_secrets(told)) == SECRETS


def test_a_recipient_that_is_gone_leaves_nothing_behind() -> None:
    told = tuple(Notification.model_validate(each) for each in NOTIFICATIONS)
    plain = written(replace(ALL, variables=MODELS))["edison-schedule.yml"].decode()
    full = with_notifications(plain, told)
    assert with_notifications(full, told) == full
    assert with_notifications(full, ()) == plain
    assert with_notifications(full, told[:1]) == with_notifications(plain, told[:1])
    shared = (told[0].model_copy(update={"webhook_env": "OPENAI_API_KEY"}),)
    assert with_notifications(plain, shared) == plain, "a name is passed on once"


def test_a_key_is_added_to_a_workflow_that_is_there_already_and_nothing_else_changes() -> None:
    before = written(replace(ALL, variables=Variables()))["edison.yml"].decode()
    before = before.replace('BUDGET: "5" # dollars', 'BUDGET: "9" # mine')
    once = with_variables(before, ONE_KEY)
    added = "          OPENAI_API_KEY: ${{ secrets.OPENAI_API_KEY }}\n"
    assert once.replace(added, "") == before != once
    assert with_variables(once, ONE_KEY) == once
    both = yaml.safe_load(with_variables(once, MODELS))["jobs"]["evaluate"]["steps"][3]["env"]
    assert list(both)[-3:] == ["OPENAI_API_KEY", "ANTHROPIC_API_KEY", "SERVER_URL"]
    assert both["EDISON_GITHUB_RUN_BUDGET"] == "9"
    assert with_variables("on: push\n", MODELS) == "on: push\n", "no place for keys in it"


def test_the_check_to_require_is_the_same_with_batches() -> None:
    for batch in (False, True):
        found = yaml.safe_load(
            dict(workflows(replace(ALL, batch=batch)))[".github/workflows/edison.yml"]
        )
        assert (found["name"], found["jobs"]["evaluate"]["name"]) == ("edison", "evaluate")
        writing = [job for job, how in found["jobs"].items() if "write" in str(how["permissions"])]
        assert writing == ["evaluate"]


def test_they_run_nothing_of_others_that_is_not_pinned() -> None:
    for name, data in workflows(ALL):
        used = set(re.findall(r"uses: (.*)", data.decode()))
        assert used <= ACTIONS, name
        assert used


def test_they_are_made_for_the_place_of_the_project_and_for_its_branch() -> None:
    made = dict(workflows(replace(ALL, project='prompts/"a b"', branch="trunk")))
    push = yaml.safe_load(made[".github/workflows/edison-push.yml"])
    assert push[True]["push"]["branches"] == ["trunk"]  # YAML 1.1 takes `on` for a truth
    for name, data in made.items():
        if b"PROJECT" in data:
            assert yaml.safe_load(data)["env"]["PROJECT"] == 'prompts/"a b"', name


def test_only_jobs_that_need_it_may_write() -> None:
    writing = {}
    for name, data in workflows(ALL):
        found = yaml.safe_load(data)
        assert found["permissions"] == {}
        (job,) = found["jobs"].values()
        write = {what for what, how in job["permissions"].items() if how == "write"}
        writing[name.rpartition("/")[2].removesuffix(".yml")] = write
    assert writing == {
        "edison": {"pull-requests"},
        "edison-approvals": set(),
        "edison-by-hand": set(),
        "edison-fork-comment": {"pull-requests"},
        "edison-push": set(),
        "edison-refine": {"contents", "pull-requests"},
        "edison-run": set(),
        "edison-schedule": set(),
    }


def test_a_job_that_may_write_for_a_stranger_has_nothing_of_his() -> None:
    text = dict(workflows(ALL))[".github/workflows/edison-fork-comment.yml"].decode()
    (job,) = yaml.safe_load(text)["jobs"].values()
    checkout = job["steps"][0]
    assert checkout["with"] == {"persist-credentials": False}, "the default branch"
    assert "secrets." not in text
    assert not re.search(r"run:.*\$\{\{", text)


@pytest.mark.nightly
def test_the_same_installation_always_packs_the_same_bytes() -> None:
    assert build_wheel() == build_wheel()
    name, data = build_wheel()
    assert name == f"edison_ci-{edison_ci.__version__}-py3-none-any.whl"
    assert len(data) < 3_000_000


def test_the_wheel_holds_what_its_record_says() -> None:
    _, data = build_wheel()
    with zipfile.ZipFile(io.BytesIO(data)) as wheel:
        names = wheel.namelist()
        (record,) = [name for name in names if name.endswith(".dist-info/RECORD")]
        rows = [*csv.reader(io.StringIO(wheel.read(record).decode()))]
        assert [row[0] for row in rows[:-1]] == sorted(set(names) - {record})
        for name, digest, size in rows[:-1]:
            content = wheel.read(name)
            made = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode()
            assert (digest, size) == (f"sha256={made.rstrip('=')}", str(len(content)))
    assert not [name for name in names if "__pycache__" in name or ".db" in name]
    assert "edison_ci/_shipped/examples/workflows/edison.yml" in names


@pytest.mark.nightly
def test_the_wheel_makes_projects_and_packs_itself_again(tmp_path: Path) -> None:
    name, data = build_wheel()
    (tmp_path / name).write_bytes(data)
    with zipfile.ZipFile(tmp_path / name) as wheel:
        wheel.extractall(tmp_path / "code")
    start = "import sys; sys.path.insert(0, sys.argv.pop(1)); from edison_ci.__main__ import main"
    made = tmp_path / "project"
    subprocess.run(
        [sys.executable, "-I", "-c", f"{start}; main()", "code", "init", "project", "--github"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        timeout=PATIENCE_S,
    )
    assert (made / ".github/edison" / name).read_bytes() == data
    assert (made / ".github/edison/run.txt").read_bytes() == (
        ROOT / "requirements/run.txt"
    ).read_bytes()


# --- installing -----------------------------------------------------------------------------------


def tiny_wheel(folder: Path) -> str:
    """Make a package without content; return its hash."""
    about = "tiny-1.0.dist-info"
    path = folder / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("tiny.py", "")
        wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        wheel.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{about}/RECORD", "")
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def laid(tmp_path: Path) -> Path:
    """The folder that workflows install from, in a repository."""
    for name, data in github_files(WorkflowChoice()):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return tmp_path / ".github" / "edison"


@pytest.mark.nightly
def test_packages_are_installed_by_hash_once_and_never_half(laid: Path, tmp_path: Path) -> None:
    right = tiny_wheel(tmp_path)
    environment = {
        **os.environ,
        **{"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "EDISON_PYTHON": sys.executable},
        "EDISON_ENVIRONMENT": str(tmp_path / "environment"),
    }

    def install(digest: str) -> subprocess.CompletedProcess[str]:
        requirement = f"tiny==1.0 --hash=sha256:{digest}\n"
        (laid / "run.txt").write_text(requirement, encoding="utf-8")
        return subprocess.run(
            ["bash", str(laid / "install.sh"), str(tmp_path / "tool")],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )

    refused = install("0" * 64)
    assert refused.returncode != 0
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in refused.stderr
    assert not (tmp_path / "environment/requirements.txt").exists()
    done = install(right)
    assert (done.returncode, done.stdout) == (0, f"edison {edison_ci.__version__}\n"), done.stderr
    (tmp_path / "tiny-1.0-py3-none-any.whl").unlink()
    assert install(right).returncode == 0, "what is there is used again"
