"""The process of `--on local:N`: forks a scheduler and workers with the keys of the project.

They run the code checks of the project as the run would do it, which decides whether it may be run:
nobody else can reach them.
"""

from __future__ import annotations

import sys
from pathlib import Path

from edison_ci import __version__
from edison_ci.access.proposal_terms import apply_base_terms
from edison_ci.api.sessions import model_caller
from edison_ci.config.load import load_project
from edison_ci.execute.check_grading import code_folder
from edison_ci.execute.run_options import allow_code
from edison_ci.execute.session import run_in_loop
from edison_ci.features.cluster.local_workers import fork_workers
from edison_ci.features.cluster.preparation import CodeChecks
from edison_ci.features.cluster.worker_tasks import WorkerService


def main() -> None:
    """Read the folder of the certificates, the number of workers, and `offline`."""
    folder, count, *options = sys.argv[1:]
    project = apply_base_terms(load_project(Path()))
    caller = model_caller(project, offline="offline" in options)
    checks = CodeChecks(project, code_folder(allow_code(project)), share=int(count))

    def serve(name: str) -> WorkerService:
        return WorkerService(caller, checks, name=name, version=__version__)

    fork_workers(Path(folder), int(count), serve, run_in_loop)


if __name__ == "__main__":
    main()
