"""The set-up of the Makefile in a small checkout: nothing is fetched, everything else is real."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.daily

ROOT = Path(__file__).resolve().parent.parent
BACKEND = """
import shutil

def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    name = "edison_ci-1.0-py3-none-any.whl"
    shutil.copy(name, wheel_directory)
    return name
"""
PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""


def wheel(folder: Path, name: str, *, starts: str = "") -> str:
    """Put a wheel of one module into a folder, and return the line that locks it."""
    path, info = folder / f"{name}-1.0-py3-none-any.whl", f"{name}-1.0.dist-info"
    texts = {
        "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "entry_points.txt": f"[console_scripts]\n{starts}\n",
        "RECORD": "",
    }
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{name}.py", "def main(): print('the demo ran')\n")
        for part, text in texts.items():
            file.writestr(f"{info}/{part}", text)
    return f"{name}==1.0 --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


class Checkout:
    """A checkout with the real Makefile and set-up, and requirements that lie on the disk."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.wheels = root.parent / "wheels"
        self.wheels.mkdir(parents=True)
        (root / "requirements").mkdir(parents=True)
        shutil.copy(ROOT / "Makefile", root)
        shutil.copy(ROOT / "requirements" / "set_up.py", root / "requirements")
        (root / "pyproject.toml").write_text(PYPROJECT)
        (root / "backend.py").write_text(BACKEND)
        wheel(root, "edison_ci", starts="edison = edison_ci:main")
        self.lock("run.txt", wheel(self.wheels, "tiny"))
        self.lock("build.txt", wheel(self.wheels, "backing"))
        self.lock("dev.txt", wheel(self.wheels, "extra"))
        self.lock("weights.txt", wheel(self.wheels, "heavy"))

    def lock(self, name: str, *lines: str) -> None:
        (self.root / "requirements" / name).write_text("".join(lines))

    def start(self, *args: str, **variables: str) -> subprocess.Popen[str]:
        command = ["make", *(args or ("demo",))]
        return subprocess.Popen(
            command,
            cwd=self.root,
            env=self.environment(**variables),
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def make(self, *args: str, **variables: str) -> tuple[int, str]:
        process = self.start(*args, **variables)
        return process.wait(), process.communicate()[0]

    def environment(self, **variables: str) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "MAKE", "MFLAGS"))}
        own = {"PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": self.wheels.as_uri()}
        return kept | {"PYTHON": sys.executable, "PIP_NO_INDEX": "1"} | own | variables

    def has(self, module: str) -> bool:
        command = [str(self.root / ".venv/bin/python"), "-c", f"import {module}"]
        return subprocess.run(command, capture_output=True).returncode == 0


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path / "a folder" / "with spaces")


@pytest.mark.nightly
def test_demo_installs_what_running_needs_and_says_so(checkout: Checkout, tmp_path: Path) -> None:
    (checkout.root / ".venv" / "bin").mkdir(parents=True)
    (checkout.root / ".venv" / "bin" / "python").write_text("half made")
    code, said = checkout.make()
    assert code == 0, said
    assert said.splitlines()[-1] == "the demo ran"
    assert f"making .venv with Python {sys.version.split()[0]}" in said
    assert "installing 2 packages of requirements/run.txt" in said
    assert not checkout.has("extra"), "what only tests need is not there"

    assert checkout.make() == (0, "the demo ran\n"), "the second time there is nothing to do"
    code, said = checkout.make("venv")
    assert (code, checkout.has("extra"), checkout.has("heavy")) == (0, True, True), said
    assert "making .venv" not in said, "the second stage builds on the first"

    checkout.lock("dev.txt", wheel(checkout.wheels, "other"))
    code, said = checkout.make("venv")
    assert (code, checkout.has("other"), checkout.has("extra")) == (0, True, False), said

    checkout.root = checkout.root.rename(tmp_path / "elsewhere")
    code, said = checkout.make()
    assert (code, said.splitlines()[-1]) == (0, "the demo ran"), said
    assert "making .venv" in said, "an environment that was moved does not work"


@pytest.mark.nightly
def test_what_cannot_be_installed_is_one_sentence_and_the_next_tries_at_once_work(
    checkout: Checkout,
) -> None:
    nowhere = {"PIP_NO_INDEX": "0", "PIP_INDEX_URL": "http://127.0.0.1:9/simple"}
    code, said = checkout.make(**nowhere, PIP_FIND_LINKS="", PIP_RETRIES="1")
    assert code != 0
    assert "making .venv" in said
    assert "set-up: the package registry cannot be reached: check the network" in said
    assert "Traceback" not in said

    right = (checkout.root / "requirements" / "run.txt").read_text()
    checkout.lock("run.txt", f"compiled==2.0 --hash=sha256:{'0' * 64}\n")
    code, said = checkout.make()
    assert code != 0
    assert "set-up: compiled==2.0 has no wheel for this machine (" in said
    assert f"Python {sys.version.split()[0]})" in said

    checkout.lock("run.txt", f"tiny==1.0 --hash=sha256:{'0' * 64}\n")
    code, said = checkout.make()
    assert code != 0
    assert "set-up: pip failed: THESE PACKAGES DO NOT MATCH THE HASHES" in said
    assert "Got" in (checkout.root / ".tools/set-up.log").read_text()

    checkout.lock("run.txt", right)
    makes = [checkout.start(), checkout.start()]
    texts = [process.communicate()[0] for process in makes]
    assert [process.returncode for process in makes] == [0, 0], texts
    assert [text.splitlines()[-1] for text in texts] == ["the demo ran"] * 2
    assert sum("installing 2 packages" in text for text in texts) == 1, "the second one waited"
    assert not any("making .venv" in text for text in texts), "nothing was put into it before"


def test_a_folder_that_cannot_be_written_is_one_sentence(checkout: Checkout) -> None:
    # Root may write everywhere, unless it gives that up.
    powerless = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.getuid() == 0 else []
    script = checkout.root / "requirements" / "set_up.py"
    checkout.root.chmod(0o555)
    try:
        command = [*powerless, sys.executable, str(script), "run"]
        done = subprocess.run(command, capture_output=True, text=True)
    finally:
        checkout.root.chmod(0o755)
    assert done.returncode == 1
    assert done.stderr.startswith(f"set-up: {checkout.root}")
    assert done.stderr.endswith("cannot be written: make the folder yours, or move it\n")


@pytest.mark.parametrize("python", ["old", "missing"])
def test_a_python_that_is_too_old_is_one_sentence(checkout: Checkout, python: str) -> None:
    path = checkout.root / "python"
    if python == "old":
        pretend = "import sys; sys.version_info = (3, 9, 18); exec(sys.argv[1])"
        path.write_text(f"#!/bin/sh\nexec {sys.executable} -c '{pretend}' \"$2\"\n")
        path.chmod(0o755)
    code, said = checkout.make("demo", f"PYTHON={path}")
    assert code != 0
    first, *_ = said.splitlines()
    assert first == (
        "Python 3.11 or newer is needed: install one, or name it: make PYTHON=/path/to/python3.11"
    )


def test_the_first_python_that_is_new_enough_is_taken(checkout: Checkout, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (("python3", "exit 1"), ("python3.14", f'exec {sys.executable} "$@"')):
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    variables = checkout.environment(PATH=f"{programs}:{os.environ['PATH']}")
    del variables["PYTHON"]
    command = ["make", "--dry-run", "demo"]
    done = subprocess.run(command, cwd=checkout.root, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done
    assert '"python3.14" -I requirements/set_up.py run' in done.stdout
