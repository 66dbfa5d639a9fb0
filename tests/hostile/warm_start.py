"""A process that has imported edison once and forks for each command it is asked to run.

Reads one JSON request a line, {"cwd", "args", "out", "err"}, runs the real command line in a child
that writes to those files, and answers with one JSON line, {"code", "cpu_s", "peak_kb"}. A child
has a hard ceiling on memory and time, so that a bomb ends the child and not the machine.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any

ADDRESS_SPACE = 2_000_000_000
SECONDS = 60
PRELOADED = (
    "edison_ci.cli.app",
    "edison_ci.cli.validate",
    "edison_ci.cli.plan",
    "edison_ci.stats.power",
    "jsonschema.validators",
    "difflib",
)


def command(request: dict[str, Any]) -> int:
    """Run one command in this process and return its exit code."""
    os.chdir(request["cwd"])
    for name, descriptor in (("out", 1), ("err", 2)):
        opened = os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(opened, descriptor)
        os.close(opened)
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    signal.alarm(SECONDS)
    from edison_ci.cli.app import run

    try:
        run(request["args"])
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else 0


def warm_up(valid_project: str) -> None:
    """Import what commands need, and let pydantic build what it builds on first use."""
    for name in PRELOADED:
        importlib.import_module(name)
    from edison_ci.config.load import load_project

    load_project(Path(valid_project))


def serve() -> None:
    """Answer requests until stdin ends."""
    for line in iter(sys.stdin.readline, ""):
        child = os.fork()
        if child == 0:
            code = 71
            try:
                code = command(json.loads(line))
            finally:
                os._exit(code)
        _, status, usage = os.wait4(child, 0)
        answer = {
            "code": os.waitstatus_to_exitcode(status),
            "cpu_s": usage.ru_utime + usage.ru_stime,
            "peak_kb": usage.ru_maxrss,
        }
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    warm_up(sys.argv[1])
    serve()
