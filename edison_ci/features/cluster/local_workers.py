"""Workers on this machine, for `--on local:N`: a scheduler and N processes that end with the run.

One process imports everything and forks the others, so that four workers start as fast as one. All
of them end when the process that wants them does, however that ends: each waits for the end of a
pipe. They use TLS with certificates of their own, because every user of a machine can reach its
loopback addresses.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.errors import UsageError
from edison_ci.features.cluster.nodes import PlainScheduler, carry_plain_data
from edison_ci.features.cluster.tls import (
    ClusterAddress,
    issue_certificates,
    read_address,
    read_certificates,
)
from edison_ci.features.cluster.worker_tasks import PlainWorker

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from edison_ci.features.cluster.tls import Certificates
    from edison_ci.features.cluster.worker_tasks import WorkerService

MOST_WORKERS = 64
START_S = 60.0
_HERE = ClusterAddress("127.0.0.1", 0, tls=True)


class LocalCluster(NamedTuple):
    """A cluster on this machine that runs."""

    scheduler: str
    certificates: Certificates
    workers: int


# --- in the process that wants them ---------------------------------------------------------------


@contextlib.contextmanager
def local_cluster(count: int, module: str, *options: str, cwd: Path) -> Iterator[LocalCluster]:
    """Start workers, and end them at the end of the block.

    The module is run with the folder of the certificates, the number and the options; it calls
    `fork_workers`.
    """
    with tempfile.TemporaryDirectory(prefix="edison-cluster-") as folder:
        issue_certificates(Path(folder), (), days=30)
        command = [sys.executable, "-P", "-m", module, folder, str(count), *options]
        # A group of its own: Ctrl-C asks the run to stop, which then waits for its answers.
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


# --- in the process that it starts ----------------------------------------------------------------


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
    told, tells = os.pipe()
    schedule = partial(_schedule, certificates, ends, tells)
    children = [_fork(holds, partial(_run, run, schedule))]
    os.close(tells)
    with os.fdopen(told) as reading:
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
