"""Without a sandbox, code of the repository does not run unless a person says so."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from edison_ci.checks.child import WITHOUT_SANDBOX, has_sandbox
from tests.timing import poll

if TYPE_CHECKING:
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

namespaces = pytest.mark.skipif(not has_sandbox(), reason="this machine does not allow namespaces")

NO_NAMESPACES = """
import ctypes, os, sys
from pathlib import Path
user = os.getuid()
assert ctypes.CDLL(None).unshare(0x10000000) == 0
Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
Path("/proc/sys/user/max_user_namespaces").write_text("0")
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Becomes a program for which the kernel makes no namespaces of users, as some kernels do."""


def edison(folder: Folder, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command where there is no sandbox: on this machine, or as on others."""
    return subprocess.run(
        [*without_namespaces(), sys.executable, "-P", "-m", "edison_ci", *words],
        cwd=folder.path,
        env={**{k: v for k, v in os.environ.items() if k != WITHOUT_SANDBOX}, **more},
        capture_output=True,
        text=True,
    )


def without_namespaces() -> list[str]:
    return [sys.executable, "-c", NO_NAMESPACES] if has_sandbox() else []


def processes_with(word: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if word.encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


@pytest.fixture
def project(mini: Folder) -> Folder:
    mini.edit("experiments/hello.yaml", 'contains: "{{ expected }}"', "command: [sh, checks/x.sh]")
    mini.write("checks/x.sh", "cat > /dev/null\ntouch PWNED\necho 1\n")
    return mini


@pytest.mark.nightly
def test_no_code_runs_without_a_sandbox(project: Folder) -> None:
    done = edison(project, "run", "--allow-code")
    assert done.returncode == 2, done.stderr
    assert "this machine has no sandbox for code" in done.stderr
    assert "--allow-code-without-sandbox" in done.stderr
    assert not (project.path / "PWNED").exists()
    project.write(
        "edison.yaml", project.read("edison.yaml") + "settings: {allow_code: true}\n"
    )  # what a file says is not enough
    assert edison(project, "run").returncode == 2
    assert not (project.path / "PWNED").exists()


@pytest.mark.nightly
@pytest.mark.parametrize("how", ["flag", "variable"])
def test_a_person_may_do_without_a_sandbox(project: Folder, how: str) -> None:
    words, more = ["run", "--allow-code"], dict[str, str]()
    if how == "flag":
        words.append("--allow-code-without-sandbox")
    else:
        more[WITHOUT_SANDBOX] = "1"
    done = edison(project, *words, **more)
    assert done.returncode in (0, 1), done.stderr
    assert (project.path / "PWNED").exists()


@namespaces
def test_in_a_sandbox_code_changes_nothing(project: Folder) -> None:
    done = project.edison("run", "--allow-code")
    assert done.code in (0, 1), done.err
    assert not (project.path / "PWNED").exists()


@pytest.mark.nightly
@pytest.mark.parametrize("sandbox", [pytest.param(True, marks=namespaces), False])
def test_code_ends_with_a_run_that_is_killed(mini: Folder, *, sandbox: bool) -> None:
    # Another run of the tests on this machine has another folder.
    mark = hashlib.sha256(str(mini.path).encode()).hexdigest()
    program = f"command: [sh, -c, 'sleep 4000; true', {mark}]"
    mini.edit("experiments/hello.yaml", 'contains: "{{ expected }}"', program)
    edison = [sys.executable, "-P", "-m", "edison_ci", "run", "--allow-code"]
    if not sandbox:
        edison = [*without_namespaces(), *edison, "--allow-code-without-sandbox"]
    with subprocess.Popen(edison, cwd=mini.path, stderr=subprocess.DEVNULL) as run:
        poll("code runs", lambda: processes_with(mark))
        run.kill()
    poll("it is gone", lambda: not processes_with(mark))


@pytest.mark.nightly
def test_the_doctor_tells(project: Folder) -> None:
    said = "warn  sandbox   none: code checks need --allow-code-without-sandbox"
    assert said in edison(project, "doctor").stdout
    assert ("ok    sandbox" in project.edison("doctor").out) is has_sandbox()
