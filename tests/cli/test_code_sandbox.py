"""Without a sandbox, code of the repository does not run unless a person says so."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from edison_ci.checks.child import WITHOUT_SANDBOX, enters
from tests.sandboxes import namespaces
from tests.timing import poll

if TYPE_CHECKING:
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

landlock = pytest.mark.skipif(not enters("landlock"), reason="this machine does not allow Landlock")

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
NO_LANDLOCK = """
import ctypes, os, struct, sys
lines = [(0x20, 0, 0, 0), (0x15, 0, 1, 444), (6, 0, 0, 0x50000 | 38), (6, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in lines))
system = ctypes.CDLL(None)
assert system.prctl(38, 1, 0, 0, 0) == 0
program = struct.pack("@HP", len(lines), ctypes.addressof(code))
assert system.prctl(22, 2, program, 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Becomes a program for which the kernel has no Landlock."""


def edison(
    folder: Folder, *words: str, refused: str = "namespaces landlock", **more: str
) -> subprocess.CompletedProcess[str]:
    """Run a command where kinds of sandbox are refused: on this machine, or as on others."""
    return subprocess.run(
        [*refusing(*refused.split()), sys.executable, "-P", "-m", "edison_ci", *words],
        cwd=folder.path,
        env={**{k: v for k, v in os.environ.items() if k != WITHOUT_SANDBOX}, **more},
        capture_output=True,
        text=True,
    )


def refusing(*kinds: str) -> list[str]:
    """Return the start of a command line that is refused these kinds of sandbox."""
    scripts = {"namespaces": NO_NAMESPACES, "landlock": NO_LANDLOCK}
    allowed = {"namespaces": enters("namespaces"), "landlock": enters("landlock")}
    return [
        word for kind in kinds if allowed[kind] for word in (sys.executable, "-c", scripts[kind])
    ]


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


KINDS = {"namespaces": "", "landlock": "namespaces"}
"""Kinds of sandbox, and what is refused so that they are used."""


@pytest.mark.parametrize(
    "kind", [pytest.param("namespaces", marks=namespaces), pytest.param("landlock", marks=landlock)]
)
def test_in_a_sandbox_code_grades_and_changes_nothing(project: Folder, kind: str) -> None:
    project.write("checks/x.sh", "cat > /dev/null\ntouch PWNED\ntouch ~/fine && echo 1\n")
    done = edison(project, "run", "--allow-code", "--json", refused=KINDS[kind])
    assert done.returncode in (0, 1), done.stderr
    (run,) = json.loads(done.stdout)["runs"]
    assert run["pass_rate"]["estimate"] == 1
    assert not (project.path / "PWNED").exists()


@pytest.mark.nightly
@pytest.mark.parametrize(
    "refused",
    [
        pytest.param("", marks=namespaces),
        pytest.param("namespaces", marks=landlock),
        "namespaces landlock",
    ],
)
def test_code_ends_with_a_run_that_is_killed(mini: Folder, refused: str) -> None:
    # Another run of the tests on this machine has another folder.
    mark = hashlib.sha256(str(mini.path).encode()).hexdigest()
    program = f"command: [sh, -c, 'sleep 4000; true', {mark}]"
    mini.edit("experiments/hello.yaml", 'contains: "{{ expected }}"', program)
    edison = [sys.executable, "-P", "-m", "edison_ci", "run", "--allow-code"]
    edison = [*refusing(*refused.split()), *edison, "--allow-code-without-sandbox"]
    with subprocess.Popen(edison, cwd=mini.path, stderr=subprocess.DEVNULL) as run:
        poll("code runs", lambda: processes_with(mark))
        run.kill()
    poll("it is gone", lambda: not processes_with(mark))


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("refused", "line"),
    [
        pytest.param("", "ok    sandbox   namespaces: code runs without", marks=namespaces),
        pytest.param("namespaces", "ok    sandbox   Landlock and seccomp: code", marks=landlock),
        ("namespaces landlock", "warn  sandbox   none: code checks need --allow-code-without-"),
    ],
)
def test_the_doctor_says_which_sandbox_there_is(project: Folder, refused: str, line: str) -> None:
    assert line in edison(project, "doctor", refused=refused).stdout
