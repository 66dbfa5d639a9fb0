"""How much does a program cost that is called as a model? (target: within twice the bare loop)

    python -m benchmarks.programs [--cases 1000] [--write docs/benchmarks/programs.md]

A trivial program answers all cases: asked in a bare loop over its pipes, through the pool of
processes of `provider: command`, and in whole runs, beside the embedded model in place of it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from edison_ci.execute.session import run_in_loop
from edison_ci.providers.command import CommandProvider, Program
from edison_ci.records import Message, Request

if TYPE_CHECKING:
    from collections.abc import Callable

APP = """\
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    text = asked["messages"][-1]["content"]
    print(json.dumps({"id": asked["id"], "text": text.upper()}), flush=True)
"""
RUN = [sys.executable, "app/main.py"]
POOL = 4
ROUNDS = 5


def bare_loop(folder: Path, cases: int) -> float:
    """Return the seconds of a loop over the pipes of one process."""
    with subprocess.Popen(
        RUN, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        began = time.perf_counter()
        for number in range(cases):
            asked = {"id": number, "messages": [{"role": "user", "content": f"hello {number}"}]}
            process.stdin.write(json.dumps(asked).encode() + b"\n")
            process.stdin.flush()
            json.loads(process.stdout.readline())
        return time.perf_counter() - began


async def pool(folder: Path, cases: int) -> float:
    """Return the seconds of the same through the pool of a provider."""

    def write_files(target: Path) -> None:
        shutil.copytree(folder / "app", target / "app")

    provider = CommandProvider(Program(RUN, folder, write_files))
    numbers = iter(range(cases))

    async def work() -> None:
        for number in numbers:
            await provider.complete(_request(number))

    await asyncio.gather(*(provider.complete(_request(-1)) for _ in range(POOL)))
    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(POOL)))
    taken = time.perf_counter() - began
    await provider.aclose()
    return taken


def _request(number: int) -> Request:
    return Request("command", "", "", (Message("user", f"hello {number}"),), {})


def whole_run(folder: Path, model: str) -> float:
    """Return the seconds of a whole run, with an empty results file."""
    (folder / "models.yaml").write_text(f"m: {model}\n")
    for path in (folder / ".edison").glob("results.db*"):
        path.unlink()
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "edison_ci", "run", "--yes", "--quiet"], cwd=folder, check=True
    )
    return time.perf_counter() - began


def lay_out(folder: Path, cases: int) -> None:
    """Write a project with a program and this many cases."""
    for name, text in {
        "app/main.py": APP,
        "edison.yaml": "version: 1\nproject: p\nsettings: {allow_code: true}\n",
        "prompts/p.md": "---\nid: p\n---\nSay hello to this person and be kind: {{ name }}\n",
        "experiments/e.yaml": "experiment: e\nobjective: Say hello to people by name.\n"
        "prompts: [prompts/p.md]\nmodels: [m]\ndataset: datasets/d.jsonl\n"
        "checks: [{contains: P}]\n",
        "datasets/d.jsonl": "".join(
            json.dumps({"id": f"c{number}", "input": {"name": f"P{number}"}}) + "\n"
            for number in range(cases)
        ),
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def main() -> None:
    """Measure and print, or write, the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as top:
        folder, cases = Path(top), given.cases
        lay_out(folder, cases)
        command = (
            f"{{provider: command, options: {{run: {json.dumps(RUN)}, files: [app]}}, price: free}}"
        )
        measured: dict[str, Callable[[], float]] = {
            "a bare loop over the pipes of one process": lambda: bare_loop(folder, cases),
            f"the pool of `provider: command`, {POOL} processes": lambda: run_in_loop(
                pool(folder, cases)
            ),
            "a whole `edison run` of the program": lambda: whole_run(folder, command),
            "a whole `edison run` of the embedded model": lambda: whole_run(
                folder, "{provider: sim, model: echo}"
            ),
        }
        seconds = {what: median(run() for _ in range(ROUNDS)) for what, run in measured.items()}
    first = next(iter(seconds.values()))
    lines = [f"{cases:,} cases, median of {ROUNDS}:", "", "| what | seconds | of the bare loop |"]
    lines += ["| --- | --- | --- |"]
    lines += [f"| {what} | {took:.2f} | {took / first:.1f}x |" for what, took in seconds.items()]
    text = "\n".join(lines) + "\n"
    print(text)
    if given.write:
        given.write.write_text(
            f"# A program as a model\n\n`python -m benchmarks.programs`\n\n{text}"
        )


if __name__ == "__main__":
    main()
