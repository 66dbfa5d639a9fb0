"""The process of `--on local:N`: forks a scheduler and workers with the keys of the project."""

from __future__ import annotations

import sys
from pathlib import Path

from edison_ci.cluster.local_workers import fork_workers
from edison_ci.config.load import load_project
from edison_ci.execute.session import run_in_loop
from edison_ci.operate.sessions import model_caller


def main() -> None:
    """Read the folder of the certificates, the number of workers, and `offline`."""
    folder, count, *options = sys.argv[1:]
    caller = model_caller(load_project(Path()), offline="offline" in options)
    fork_workers(Path(folder), int(count), caller, run_in_loop)


if __name__ == "__main__":
    main()
