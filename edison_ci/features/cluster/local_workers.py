"""Workers of one run, for the option --on: those at a scheduler, or N processes on this machine.

For `--on local:N` this module is run as a process. It imports everything and forks the others, so
that four workers start as fast as one, with the keys of the project. They run the code checks of
the project as the run would do it, which decides whether it may be run: no other process can reach
them. All of them end when the process that started them does, however that ends: each waits for the
end of a pipe. They use TLS with their own certificates, because every user of a machine can
reach its loopback addresses.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from edison_ci import __version__
from edison_ci.access.model_keys import model_caller
from edison_ci.access.proposal_terms import apply_base_terms
from edison_ci.config.load import load_project
from edison_ci.errors import UsageError
from edison_ci.execute.session import run_in_loop
from edison_ci.features.cluster.dask_executor import DaskExecutor
from edison_ci.features.cluster.nodes import PlainScheduler, carry_plain_data
from edison_ci.features.cluster.preparation import CodeChecks
from edison_ci.features.cluster.tls import (
    ClusterAddress,
    certificates_for,
    issue_certificates,
    probe,
    read_address,
    read_certificates,
)
from edison_ci.features.cluster.worker import PlainWorker, WorkerService

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence

    from edison_ci.config.models import Model
    from edison_ci.execute.run_options import ConnectWorkers
    from edison_ci.features.cluster.tls import Certificates

MOST_WORKERS = 64
START_S = 60.0
_HERE = ClusterAddress("127.0.0.1", 0, tls=True)
_LOCAL = re.compile(r"local:([0-9]{1,4})")


class LocalCluster(NamedTuple):
    """A cluster on this machine that runs."""

    scheduler: str
    certificates: Certificates
    workers: int


@contextlib.contextmanager
def workers_at(on: str, tls: Path | None, root: Path, *, offline: bool) -> Iterator[ConnectWorkers]:
    """Yield what connects runs to workers; those of `local:N` end with the block."""
    if "://" not in on and not on.startswith("local:"):
        raise UsageError(
            f"{on!r} is neither local:N nor the address of a scheduler",
            hint="write --on local:4, or --on tls://HOST:PORT",
        )
    if not on.startswith("local:"):
        address = read_address(on)
        certificates = certificates_for(address, tls)
        asyncio.run(probe(address, certificates))
        yield _connector(str(address), certificates, 0)
        return
    local = _LOCAL.fullmatch(on)
    count = 0 if local is None else int(local[1])
    if not 1 <= count <= MOST_WORKERS:
        raise UsageError(
            f"{on!r} is not local:N with 1 to {MOST_WORKERS} workers",
            hint="write --on local:4",
        )
    options = ["offline"] if offline else []
    with local_cluster(count, *options, cwd=root) as cluster:
        yield _connector(cluster.scheduler, cluster.certificates, count)


def _connector(scheduler: str, certificates: Certificates | None, at_least: int) -> ConnectWorkers:
    security = None if certificates is None else certificates.security()

    async def connect(
        run_id: str,
        models: Sequence[Model],
        programs: Mapping[str, str],
        tell: Callable[[str], None],
    ) -> DaskExecutor:
        executor = DaskExecutor(scheduler, security, run_id, models, tell)
        await executor.open(at_least, programs)
        return executor

    return connect


@contextlib.contextmanager
def local_cluster(
    count: int, *options: str, cwd: Path, module: str = __name__
) -> Iterator[LocalCluster]:
    """Start workers, and end them at the end of the block.

    The module is run with the folder of the certificates, the number and the options; it calls
    `fork_workers`.
    """
    with tempfile.TemporaryDirectory(prefix="edison-cluster-") as folder:
        issue_certificates(Path(folder), (), days=30)
        command = [sys.executable, "-P", "-m", module, folder, str(count), *options]
        # A separate group: Ctrl-C asks the run to stop, which then waits for its answers.
        crew = subprocess.Popen(
            command,
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )
        assert crew.stdin is not None and crew.stdout is not None, "both are pipes"
        try:
            address = crew.stdout.readline().strip()
            if not address:
                raise UsageError("the workers did not start", hint="see what they printed above")
            yield LocalCluster(address, read_certificates(Path(folder)), count)
        finally:
            crew.stdin.close()
            crew.stdout.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                crew.wait(START_S)


def fork_workers(
    folder: Path,
    count: int,
    serve: Callable[[str], WorkerService],
    run: Callable[[Coroutine[None, None, None]], None],
) -> None:
    """Fork a scheduler and workers, print the address, and end them when stdin ends.

    The folder is removed then: the process that made it may have been killed.
    """
    carry_plain_data()
    logging.getLogger("tornado").setLevel(logging.CRITICAL)  # heartbeats fail when all of it ends
    certificates = read_certificates(folder)
    ends, holds = os.pipe()
    address_end, tells = os.pipe()
    schedule = partial(_schedule, certificates, ends, tells)
    children = [_fork(holds, partial(_run, run, schedule))]
    os.close(tells)
    with os.fdopen(address_end) as reading:
        address = reading.readline().strip()
    for number in range(1, count + 1):
        service = partial(serve, f"local-{number}")
        work = partial(_work, address, certificates, folder, ends, service)
        children.append(_fork(holds, partial(_run, run, work)))
    print(address, flush=True)  # noqa: T201  # the process that waits reads it
    sys.stdin.read()
    os.close(holds)
    for child in reversed(children):
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(child, signal.SIGTERM)
            os.waitpid(child, 0)
    shutil.rmtree(folder, ignore_errors=True)


def _run(
    run: Callable[[Coroutine[None, None, None]], None],
    main: Callable[[], Coroutine[None, None, None]],
) -> None:
    run(main())


def _fork(holds: int, main: Callable[[], None]) -> int:
    """Run a function in a fork that does not keep the others alive."""
    child = os.fork()
    if child:
        return child
    os.close(holds)
    code = 1
    try:
        main()
        code = 0
    finally:
        os._exit(code)


async def _schedule(certificates: Certificates, ends: int, tells: int) -> None:
    async with PlainScheduler(_HERE, certificates.security(), lambda _: None) as scheduler:
        os.write(tells, f"{scheduler.address}\n".encode())
        os.close(tells)
        await _ended(ends)


async def _work(
    address: str,
    certificates: Certificates,
    folder: Path,
    ends: int,
    serve: Callable[[], WorkerService],
) -> None:
    service = serve()
    security, scheduler = certificates.security(), read_address(address)
    scratch = tempfile.mkdtemp(dir=folder)
    async with PlainWorker(scheduler, Path(scratch), service, security):
        await _ended(ends)


async def _ended(ends: int) -> None:
    """Return when the other end of a pipe is closed, or at SIGTERM."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(ends, ended.set)
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    await ended.wait()
    loop.remove_reader(ends)


def main() -> None:
    """Read the folder of the certificates, the number of workers, and `offline`."""
    folder, count, *options = sys.argv[1:]
    project = apply_base_terms(load_project(Path()))
    caller = model_caller(project, offline="offline" in options)
    checks = CodeChecks.allowed_by(project, share=int(count))

    def serve(name: str) -> WorkerService:
        return WorkerService(caller, checks, name=name, version=__version__)

    fork_workers(Path(folder), int(count), serve, run_in_loop)


if __name__ == "__main__":
    main()
