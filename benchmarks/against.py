"""Speed and memory of this checkout beside another commit, measured in alternation.

    python -m benchmarks.against COMMIT [--rounds 7] [--rows 1,4,6] [--write FILE]

Both sides are exported from git, built as wheels and installed into environments that have their
own locked requirements, under .tools/against, where they are kept. This checkout is measured with
its uncommitted changes of tracked files. Both have the same Python, variables, project files and
mock server, which is pinned to one core and `edison` to the other. Every measurement is made once
before it counts, and then by turns, ours first and theirs first, so that a machine that becomes
slower or faster changes both. Rows are those of the targets; row 16, which needs a million answers
of each side, is measured only if it is named.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.measure import ENVIRONMENT, once
from benchmarks.pages import LINES, served, warm_timing
from benchmarks.running import CONNECTIONS, HERE, LATENCY_MS, Server, check, make_project, serving

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROOT = HERE.parent
KEPT = ROOT / ".tools" / "against"
ROWS = (1, 2, 4, 6, 7, 8, 9, 11, 16)
COSTLY_ROWS = {16}
SMALL, LARGE = 1_000, 10_000
"""Cases of the runs."""
FAILURES = (SystemExit, sqlite3.Error, OSError, subprocess.SubprocessError)
"""What a side that cannot do something ends with."""


# --- the two sides --------------------------------------------------------------------------------


class Side(NamedTuple):
    """An installed commit."""

    name: str
    title: str
    folder: Path

    @property
    def source(self) -> Path:
        """The exported files of the commit."""
        return self.folder / "source"

    @property
    def python(self) -> str:
        """The interpreter of its environment."""
        return str(self.folder / "environment" / "bin" / "python")

    @property
    def edison(self) -> list[str]:
        """The command; -I keeps modules of other folders away from it."""
        return [self.python, "-I", "-m", "edison_ci"]


def git(*words: str) -> str:
    """Return what git answers about this checkout."""
    command = ["git", "-c", "user.name=bench", "-c", "user.email=bench@localhost", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"git {' '.join(words)} failed: {done.stderr.strip()}")
    return done.stdout.strip()


def install_this_checkout() -> Side:
    """Install the last commit with what was changed since."""
    changed = git("stash", "create")  # a commit that no branch has; empty without changes
    title = git("rev-parse", "--short", "HEAD") + (" with changes" if changed else "")
    packaged = ("edison_ci", "schemas", "examples", "requirements")
    if untracked := git("ls-files", "--others", "--exclude-standard", "--", *packaged):
        notice = f"not measured, because git does not track them (git add): {untracked.split()}"
        print(notice, file=sys.stderr)
    side = Side("ours", title, KEPT / "head")
    install(side, changed or git("rev-parse", "HEAD"))
    return side


def install_commit(name: str) -> Side:
    """Install another commit."""
    commit = git("rev-parse", "--verify", f"{name}^{{commit}}")
    side = Side("theirs", git("rev-parse", "--short", commit), KEPT / commit)
    install(side, commit)
    return side


def install(side: Side, commit: str) -> None:
    """Export a commit, build its wheel and install it beside its locked requirements."""
    stamp, content = side.folder / "installed", f"{sys.version}\n{git('rev-parse', f'{commit}:')}"
    if stamp.exists() and stamp.read_text() == content:
        return
    print(f"installing {side.title}", file=sys.stderr)
    side.folder.mkdir(parents=True, exist_ok=True)
    stamp.unlink(missing_ok=True)
    shutil.rmtree(side.source, ignore_errors=True)
    archive = side.folder / "source.tar"
    git("archive", "--output", str(archive), commit)
    shutil.unpack_archive(archive, side.source)
    archive.unlink()
    _install_requirements(side)
    wheels = side.folder / "dist"
    shutil.rmtree(wheels, ignore_errors=True)
    building = ["-m", "build", "--wheel", "--no-isolation", "--outdir", str(wheels)]
    _python(sys.executable, *building, str(side.source))
    (wheel,) = wheels.iterdir()
    _pip(side, "--no-deps", "--no-index", "--force-reinstall", str(wheel))
    stamp.write_text(content)


def _install_requirements(side: Side) -> None:
    lock, stamp = side.source / "requirements" / "run.txt", side.folder / "requirements"
    if not lock.exists():
        raise SystemExit(f"{side.title} has no locked requirements (requirements/run.txt)")
    content = f"{sys.version}\n{lock.read_text()}"
    if stamp.exists() and stamp.read_text() == content:
        return
    stamp.unlink(missing_ok=True)
    _python(sys.executable, "-m", "venv", "--clear", str(side.folder / "environment"))
    # Python compiles what is imported, which the first measurement is for.
    options = ("--require-hashes", "--no-deps", "--only-binary", ":all:", "--no-compile")
    _pip(side, *options, "--requirement", str(lock))
    stamp.write_text(content)


def _pip(side: Side, *options: str) -> None:
    quiet = ("--quiet", "--disable-pip-version-check", "--no-input")
    _python(side.python, "-I", "-m", "pip", "install", *quiet, *options)


def _python(*command: str) -> None:
    environment = ENVIRONMENT | {"PIP_USER": "0"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")


# --- what is measured -----------------------------------------------------------------------------


class Figure(NamedTuple):
    """A line of the table: its row of the targets, and how a value is written."""

    row: int
    what: str
    form: str


class Trial(NamedTuple):
    """A measurement of a side that yields a value for each of its figures."""

    figures: tuple[Figure, ...]
    measure: Callable[[Side], Sequence[float]]
    pairs: int = 1
    """Alternations in a round: several where a measurement is short."""


@dataclass(frozen=True)
class Bench:
    """Projects of both sides with the same files, and the model server that they ask."""

    folder: Path
    server: Server
    sides: tuple[Side, Side]

    def project(self, side: Side, name: str) -> Path:
        """Return a folder in which only this side works."""
        return self.folder / side.name / name

    def make_projects(self, cases: int) -> None:
        """Write a project of so many cases for each side."""
        for side in self.sides:
            make_project(self.project(side, str(cases)), self.server, cases)

    def make_first_projects(self) -> None:
        """Write the project that `edison init` makes, for each side."""
        example = self.sides[0].source / "examples" / "customer-support"
        for side in self.sides:
            project = self.project(side, "first")
            shutil.copytree(example, project)
            experiment = project / "experiments" / "support-reply.yaml"
            # Older commits have another name for this key; without it both take the default.
            text = re.sub(r"(?m)^repeats: 1 .*\n", "", experiment.read_text(encoding="utf-8"))
            experiment.write_text(text, encoding="utf-8")

    def run(self, side: Side, cases: int) -> tuple[float, float, float, float]:
        """Run a project from nothing: wall, wall / ideal, CPU per call, peak memory."""
        project = self.project(side, str(cases))
        shutil.rmtree(project / ".edison", ignore_errors=True)
        self.server.stats("/reset")
        result = once([*side.edison, "run", "-q", "--yes"], project, tree=True)
        self._expect_calls(cases)
        check(project)
        per_call_ms = 1000 * result.cpu_s / cases
        return result.wall_s, result.wall_s / ideal_s(cases), per_call_ms, result.peak_mb

    def rerun(self, side: Side, cases: int) -> tuple[float, float]:
        """Run a project again whose answers are all stored: wall and CPU, in seconds."""
        project = self.project(side, str(cases))
        if not (project / ".edison").exists():
            self.run(side, cases)
        self.server.stats("/reset")
        result = once([*side.edison, "run", "-q", "--yes"], project)
        self._expect_calls(0)
        check(project)
        return result.wall_s, result.cpu_s

    def _expect_calls(self, expected: int) -> None:
        if (calls := self.server.stats()["requests"]) != expected:
            raise SystemExit(f"made {calls:,} calls instead of {expected:,}")

    def command(self, side: Side, words: str) -> tuple[float, float]:
        """Use a command in the first project: wall and CPU, in milliseconds."""
        project = self.first_project(side, words)
        result = once([*side.edison, *words.split()], project)
        return 1000 * result.wall_s, 1000 * result.cpu_s

    def first_project(self, side: Side, words: str) -> Path:
        """Return the first project, with the results of a run if the command reads them."""
        project = self.project(side, "first")
        if words in {"status", "plan"} and not (project / ".edison" / "results.db").exists():
            once([*side.edison, "run", "-q", "--yes"], project)
        return project

    def bare_loop(self) -> float:
        """Return the seconds that a bare aiohttp loop takes for the calls of row 1."""
        script = [self.sides[0].python, "-I", str(HERE / "bare.py")]
        sizes = map(str, (self.server.port, SMALL, CONNECTIONS))
        return once([*script, *sizes], self.folder).wall_s


def ideal_s(calls: int) -> float:
    """Return the seconds that the calls take if nothing else does."""
    return calls * LATENCY_MS / 1000 / CONNECTIONS


def trials_of(bench: Bench) -> list[Trial]:
    """Return what can be measured with little preparation."""
    runs = {
        SMALL: (Figure(1, "1,000 cases, wall", "{:.2f} s"),
                Figure(1, "1,000 cases, wall / ideal", "{:.2f}"),
                Figure(1, "1,000 cases, CPU per call", "{:.3f} ms"),
                Figure(11, "peak memory of all processes, 1,000 cases", "{:.1f} MB")),
        LARGE: (Figure(2, "10,000 cases, wall", "{:.2f} s"),
                Figure(2, "10,000 cases, wall / ideal", "{:.3f}"),
                Figure(4, "CPU per call, 10,000 cases", "{:.3f} ms"),
                Figure(11, "peak memory of all processes, 10,000 cases", "{:.1f} MB")),
    }  # fmt: skip
    reruns = {
        SMALL: (Figure(6, "cached re-run, 1,000 cases, wall", "{:.2f} s"),
                Figure(6, "cached re-run, 1,000 cases, CPU", "{:.2f} s")),
        LARGE: (Figure(7, "cached re-run, 10,000 cases, wall", "{:.2f} s"),
                Figure(7, "cached re-run, 10,000 cases, CPU", "{:.2f} s")),
    }  # fmt: skip
    commands = {"--version": 8, "--help": 8, "validate": 9, "status": 9, "plan": 9}
    trials = []
    for cases in (SMALL, LARGE):
        trials.append(Trial(runs[cases], partial(bench.run, cases=cases)))
        pairs = 3 if cases == SMALL else 1
        trials.append(Trial(reruns[cases], partial(bench.rerun, cases=cases), pairs))
    for words, row in commands.items():
        figures = tuple(Figure(row, f"`{words}`, {kind}", "{:.0f} ms") for kind in ("wall", "CPU"))
        trials.append(Trial(figures, partial(bench.command, words=words), 5 if row == 8 else 3))
    return trials


# --- pages ----------------------------------------------------------------------------------------

GENERATE = """\
import sys
from pathlib import Path
from benchmarks.large_results import generate
generate(Path(sys.argv[1]), int(sys.argv[2]))
"""
LIST = """\
import json, sys
from pathlib import Path
from benchmarks.pages import pages
json.dump(pages(Path(sys.argv[1])), sys.stdout)
"""


class SidePages(NamedTuple):
    """The results of a side, and the paths of its pages by name."""

    root: Path
    paths: dict[str, str]


def pages_trial(pages: dict[str, SidePages], sides: tuple[Side, Side]) -> Trial:
    """Return the measurement of the pages that both sides have."""
    ours, theirs = (pages[side.name].paths for side in sides)
    names = [name for name in ours if name in theirs]

    def measure(side: Side) -> list[float]:
        root, paths = pages[side.name]
        with served(root, LINES[0], side.edison) as server:
            server.settle(paths.values())
            timings = [warm_timing(server, name, paths[name], 0.0) for name in names]
        p95_ms = [timing.p95 for timing in timings]
        cpu_ms = sum(timing.cpu for timing in timings)
        return [statistics.median(p95_ms), max(p95_ms), cpu_ms, *p95_ms]

    labels = [
        f"median of {len(names)} pages, warm p95",
        "slowest page, warm p95",
        f"CPU of a visit to each of the {len(names)} pages",
        *(f"{name}, warm p95" for name in names),
    ]
    return Trial(tuple(Figure(16, label, "{:.1f} ms") for label in labels), measure)


def unmeasured_pages(pages: dict[str, SidePages], sides: tuple[Side, Side]) -> list[str]:
    """Return a sentence about the pages of each side that the other does not have."""
    lines = []
    for side, other in (sides, sides[::-1]):
        paths = pages[other.name].paths
        if names := [name for name in pages[side.name].paths if name not in paths]:
            lines.append(f"Row 16, only in {side.title} and not measured: {'; '.join(names)}.")
    return lines


def pages_of(side: Side, outputs: int) -> SidePages:
    """Return the pages of a side on as many outputs, which are written if they are not there."""
    root = side.folder / f"results-{outputs}"
    stamp, content = root / ".edison" / "filled", _results_version(side)
    if not stamp.exists() or stamp.read_text() != content:
        print(f"writing {outputs:,} outputs of {side.title}", file=sys.stderr)
        shutil.rmtree(root, ignore_errors=True)
        _script(side, GENERATE, str(root), str(outputs))
        stamp.write_text(content)
    return SidePages(root, json.loads(_script(side, LIST, str(root))))


def _results_version(side: Side) -> str:
    """Return a hash of the code that decides what the rows of the results are."""
    digest = hashlib.sha256()
    for folder in ("store", "results"):
        for path in sorted((side.source / "edison_ci" / folder).rglob("*.*")):
            if path.is_file() and path.suffix != ".pyc":
                digest.update(path.read_bytes())
    digest.update((side.source / "benchmarks" / "large_results.py").read_bytes())
    return digest.hexdigest()


def _script(side: Side, script: str, *words: str) -> str:
    """Return the output of a script that uses the benchmarks of a side."""
    command = [side.python, "-c", script, *words]
    done = subprocess.run(
        command, cwd=side.source, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


# --- modules --------------------------------------------------------------------------------------

COUNT = """\
import atexit, sys
from pathlib import Path

@atexit.register
def write(path=Path(sys.argv[1])):
    path.write_text(str(sum(name.startswith("edison_ci") for name in sys.modules)))

sys.argv[:] = ["edison", *sys.argv[2:]]
from edison_ci.__main__ import main
main()
"""
COUNTED = ("run", "plan", "status", "validate", "run --help")


def own_modules(bench: Bench, side: Side) -> list[str]:
    """Return how many modules of the package each command has loaded when it ends."""
    counts = []
    for words in COUNTED:
        try:
            counts.append(_own_modules(bench, side, words))
        except FAILURES:
            counts.append("failed")
    return counts


def _own_modules(bench: Bench, side: Side, words: str) -> str:
    project, options = bench.first_project(side, words), []
    if words == "run":  # what row 1 measures
        project = make_project(bench.project(side, "modules"), bench.server, cases=20)
        options = ["-q", "--yes"]
    path = bench.folder / "modules"
    path.unlink(missing_ok=True)
    once([side.python, "-I", "-c", COUNT, str(path), *words.split(), *options], project)
    return path.read_text()


# --- by turns -------------------------------------------------------------------------------------


@dataclass
class Comparison:
    """What was measured of a figure: the values of both sides in the order of alternations."""

    figure: Figure
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)

    def add(self, side_name: str, value: float) -> None:
        """Keep a value of one side."""
        (self.ours if side_name == "ours" else self.theirs).append(value)

    @property
    def ratios(self) -> list[float]:
        """Ours / theirs, for each alternation that both sides completed."""
        return [ours / theirs for ours, theirs in zip(self.ours, self.theirs, strict=False)]


class Quartiles(NamedTuple):
    """The middle of some values, and the middle half of them."""

    lower: float
    median: float
    upper: float


def quartiles(values: Sequence[float]) -> Quartiles:
    """Return the quartiles of one value or more."""
    if len(values) == 1:
        return Quartiles(values[0], values[0], values[0])
    return Quartiles(*statistics.quantiles(values, n=4, method="inclusive"))


def in_order(sides: tuple[Side, Side], alternation: int) -> tuple[Side, Side]:
    """Return who is first and who is second: A B, B A, A B, and so on."""
    return (sides[1], sides[0]) if alternation % 2 else sides


class Alternation:
    """Measures trials by turns, and keeps what a side cannot do."""

    def __init__(self, sides: tuple[Side, Side], trials: Sequence[Trial]) -> None:
        self._sides = sides
        self._trials = trials
        self._made = dict.fromkeys(range(len(trials)), 0)
        self.comparisons = {
            figure: Comparison(figure) for trial in trials for figure in trial.figures
        }
        self.failures: dict[tuple[int, str], str] = {}

    def warm_up(self) -> None:
        """Measure everything once without counting it: bytecode, caches, and what fails."""
        for number in range(len(self._trials)):
            for side in self._sides:
                self._measure(number, side)

    def round(self) -> None:
        """Measure every trial as often as it says, by turns."""
        for number, trial in enumerate(self._trials):
            for _ in range(trial.pairs):
                for side in in_order(self._sides, self._made[number]):
                    self._keep(number, side)
                self._made[number] += 1

    def _keep(self, number: int, side: Side) -> None:
        if values := self._measure(number, side):
            for figure, value in zip(self._trials[number].figures, values, strict=True):
                self.comparisons[figure].add(side.name, value)

    def _measure(self, number: int, side: Side) -> Sequence[float]:
        if (number, side.name) in self.failures:
            return ()
        try:
            return self._trials[number].measure(side)
        except FAILURES as error:
            self.failures[number, side.name] = str(error)
            return ()

    def failure_lines(self) -> list[str]:
        """Return a sentence for each trial that a side could not do."""
        titles = {side.name: side.title for side in self._sides}
        return [
            f"Row {self._trials[number].figures[0].row}, {self._trials[number].figures[0].what}, "
            f"failed with {titles[name]}: {' '.join(reason.split())}"
            for (number, name), reason in self.failures.items()
        ]


# --- the report -----------------------------------------------------------------------------------


def table(comparisons: Sequence[Comparison], sides: tuple[Side, Side]) -> list[str]:
    """Return the lines of a table in Markdown."""
    ours, theirs = (side.title for side in sides)
    lines = [
        f"| row | what | {ours} | {theirs} | ratio | quartiles | pairs |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for comparison in comparisons:
        figure, ratios = comparison.figure, comparison.ratios
        values = [
            figure.form.format(statistics.median(values)) if values else "failed"
            for values in (comparison.ours, comparison.theirs)
        ]
        shown = ["", ""]
        if ratios:
            middle = quartiles(ratios)
            shown = [f"{middle.median:.3f}", f"{middle.lower:.3f} to {middle.upper:.3f}"]
        cells = [str(figure.row), figure.what, *values, *shown, str(len(ratios))]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def module_table(counts: Sequence[Sequence[str]], sides: tuple[Side, Side]) -> list[str]:
    """Return the lines of the table of loaded modules."""
    lines = [
        f"| own modules loaded by | {sides[0].title} | {sides[1].title} |",
        "| --- | --- | --- |",
    ]
    return lines + [
        f"| `{words}` | {ours} | {theirs} |"
        for words, ours, theirs in zip(COUNTED, *counts, strict=True)
    ]


def floor_line(walls_s: Sequence[float]) -> str:
    """Return what a bare loop took for the calls of row 1."""
    wall = quartiles(walls_s)
    lower, median, upper = (value / ideal_s(SMALL) for value in wall)
    return (
        f"A bare aiohttp loop took {wall.median:.2f} s for the calls of row 1: {median:.2f} of the "
        f"ideal, quartiles {lower:.2f} to {upper:.2f}."
    )


class Request(NamedTuple):
    """What is to be measured."""

    rows: set[int]
    rounds: int
    outputs: int
    """Stored answers on which pages are measured."""


def report(sides: tuple[Side, Side], request: Request) -> str:
    """Measure both sides and return the page of it."""
    load_before = os.getloadavg()[0]
    with (
        tempfile.TemporaryDirectory() as name,
        serving(Path(name), latency_ms=LATENCY_MS) as server,
    ):
        bench = Bench(Path(name), server, sides)
        bench.make_first_projects()
        for cases in (SMALL, LARGE):
            bench.make_projects(cases)
        trials, notes = _chosen_trials(bench, request)
        alternation = Alternation(sides, trials)
        bare_s = _measure_rounds(alternation, bench, request.rounds)
        counts = [own_modules(bench, side) for side in sides]
    comparisons = sorted(
        (c for figure, c in alternation.comparisons.items() if figure.row in request.rows),
        key=lambda comparison: comparison.figure.row,
    )
    head = (
        f"{sides[0].title} (this checkout) beside {sides[1].title} by `python -m "
        f"benchmarks.against` on {os.cpu_count()} cores, Python {platform.python_version()}, load "
        f"{load_before:.1f} before and {os.getloadavg()[0]:.1f} after: medians of {request.rounds} "
        "rounds by turns. A ratio is ours / theirs of two measurements that follow each other; "
        "the table has the median ratio and its quartiles. Below 1 this checkout needs less."
    )
    parts = [[head], table(comparisons, sides), *([note] for note in notes)]
    parts += [[line] for line in alternation.failure_lines()]
    parts += [[floor_line(bare_s)], module_table(counts, sides)]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _chosen_trials(bench: Bench, request: Request) -> tuple[list[Trial], list[str]]:
    """Return the trials of the chosen rows, and notes about what they leave out."""
    trials, notes = trials_of(bench), []
    if 16 in request.rows:
        try:
            pages = {side.name: pages_of(side, request.outputs) for side in bench.sides}
        except FAILURES as error:
            notes = [f"Row 16 failed: {error}"]
        else:
            trials.append(pages_trial(pages, bench.sides))
            notes = unmeasured_pages(pages, bench.sides)
    chosen = [t for t in trials if request.rows.intersection(f.row for f in t.figures)]
    return chosen, notes


def _measure_rounds(alternation: Alternation, bench: Bench, rounds: int) -> list[float]:
    """Measure both sides; return the seconds of a bare loop in each round."""
    print("warming up", file=sys.stderr)
    alternation.warm_up()
    bare_s = []
    for number in range(rounds):
        start = time.perf_counter()
        bare_s.append(bench.bare_loop())
        alternation.round()
        took_s = time.perf_counter() - start
        print(f"round {number + 1} of {rounds}: {took_s:.0f} s", file=sys.stderr)
    return bare_s


def rows_of(text: str) -> set[int]:
    """Return the rows that are named, such as `1,4,6`."""
    rows = {int(word) for word in text.split(",")}
    if unknown := rows.difference(ROWS):
        raise ValueError(f"no such row: {unknown}")
    return rows


def main() -> None:
    """Measure, print and perhaps write the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("commit", help="the other commit, branch or tag")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--rows",
        type=rows_of,
        default=set(ROWS) - COSTLY_ROWS,
        help=f"some of {','.join(map(str, ROWS))}; all but 16 unless named",
    )
    parser.add_argument("--outputs", type=int, default=1_000_000, help="answers of row 16")
    parser.add_argument("--write", type=Path)
    args = parser.parse_args()
    if args.rounds < 1:
        parser.error("--rounds must be 1 or more")
    sides = (install_this_checkout(), install_commit(args.commit))
    text = report(sides, Request(args.rows, args.rounds, args.outputs))
    print(text)
    if args.write:
        args.write.parent.mkdir(parents=True, exist_ok=True)
        args.write.write_text(f"# Beside {sides[1].title}\n\n{text}", encoding="utf-8")


if __name__ == "__main__":
    main()
