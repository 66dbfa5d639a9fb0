"""Runs or resumes an experiment in a process of its own, so that tests can kill it.

python -m tests.execute.child FOLDER run|resume [--hold-at N]

It tells how many cells are done, and at N waits for a line on its standard input.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from edison_ci.config.load import load_project
from edison_ci.execute.grading import CellGrade
from edison_ci.execute.run_options import RunContext, RunOptions, RunOutcome, options_of
from edison_ci.execute.session import Session
from edison_ci.providers.adapters import provider_for
from edison_ci.records import CellStatus
from edison_ci.store.database import open_reader
from edison_ci.store.runs import find_run

if TYPE_CHECKING:
    from edison_ci.checks.output import Output
    from edison_ci.execute.progress import Progress
    from edison_ci.providers.budget import StoredAnswer
    from edison_ci.records import Case


class ByLength:
    """Grades an answer by its length: enough to tell whether two runs say the same."""

    async def grade(self, case: Case, output: Output, paid: StoredAnswer) -> CellGrade:
        score = min(len(output.text) / 1000, 1.0)
        return CellGrade(CellStatus.OK, score, score > 0.2)


@dataclass
class Telling:
    """Tells how far a run is, and keeps it from going on at one point."""

    hold_at: int | None = None

    def __call__(self, progress: Progress) -> None:
        sys.stdout.write(f"{progress.done}\n")
        sys.stdout.flush()
        if self.hold_at is not None and progress.done >= self.hold_at:
            self.hold_at = None
            sys.stdin.readline()


def start(
    folder: Path, how: str, budget: int | None = None, hold_at: int | None = None
) -> RunOutcome:
    project = load_project(folder)
    experiment = next(iter(project.experiments.values()))
    tell = Telling(hold_at)
    tools = RunContext(
        provider_for, lambda _project, _experiment, _clients: ByLength(), on_progress=tell
    )
    session = Session(project, experiment, tools)
    if how == "run":
        return session.run(RunOptions(budget_microusd=budget))
    reader = open_reader(folder / project.file.results)
    run = find_run(reader, "latest")
    reader.close()
    return session.resume(run, replace(options_of(run), budget_microusd=budget))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("how", choices=["run", "resume"])
    parser.add_argument("--hold-at", type=int)
    args = parser.parse_args()
    sys.exit(int(start(args.folder, args.how, hold_at=args.hold_at).exit_code))


if __name__ == "__main__":
    main()
