"""edison worker: workers of a cluster, their scheduler and their certificates."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from typing import TYPE_CHECKING

import click

from edison_ci import __version__
from edison_ci._dataclass import dataclass
from edison_ci.access import model_keys, proposal_terms
from edison_ci.access.job import key_environment
from edison_ci.cli import lookup
from edison_ci.cli.options import (
    CliState,
    EdisonCommand,
    EdisonGroup,
    NumberRange,
    takes,
)
from edison_ci.cli.sessions import allow_code as allow_code_options
from edison_ci.cli.sessions import require_dask, tls_folder_option
from edison_ci.cli.terminal import GOOD, ODD, StyledText, Terminal, flush
from edison_ci.errors import UsageError
from edison_ci.features.cluster import preparation, wire
from edison_ci.features.cluster import tls as cluster_tls

if TYPE_CHECKING:
    from pathlib import Path

    from edison_ci.config.load import Project
    from edison_ci.features.cluster.tls import ClusterAddress


@dataclass(frozen=True, slots=True)
class WorkerRequest:
    """Where a worker connects, and what it may do."""

    connect: str | None
    name: str | None
    grace: float
    """Seconds for calls in flight after the first signal."""
    wait: float
    """Seconds to wait for a scheduler that does not answer."""
    tls: Path | None
    """Folder of the certificates; the usual one if None."""
    allow_code: bool


@click.group(cls=EdisonGroup, invoke_without_command=True)
@click.option("--connect", metavar="ADDRESS", help="Scheduler to work for: tls://HOST:PORT.")
@click.option("--name", help="Name of this worker; default: host name and process id.")
@click.option(
    "--grace",
    type=NumberRange(0, 3_600),
    default=60,
    show_default=True,
    help="Seconds for calls in flight after SIGTERM or Ctrl-C.",
)
@click.option(
    "--wait",
    type=NumberRange(0, 86_400),
    default=60,
    show_default=True,
    help="Seconds to wait for a scheduler that does not answer.",
)
@tls_folder_option
@allow_code_options
@click.pass_context
@takes(WorkerRequest)
def worker(ctx: click.Context, request: WorkerRequest) -> None:
    """Make calls for runs of other machines, and connect the machines.

    Run it in a checkout of the project. It calls the models of its own models.yaml whose keys are
    set here, and others only where the trust.yaml of the checkout lets the key go. With
    --allow-code it also runs checks of type python and command, if their files are the same in the
    checkout and in the run. It writes nothing. SIGTERM or Ctrl-C ends it when the calls in flight
    are answered, a second one at once.

    Examples:
      edison worker --connect tls://build-1:8786
      edison worker --connect tls://build-1:8786 --allow-code
      edison worker keys build-1 build-2
      edison worker scheduler --listen tls://0.0.0.0:8786
    """
    if ctx.invoked_subcommand is not None:
        return
    if request.connect is None:
        raise UsageError(
            "a worker needs a scheduler to work for",
            hint="edison worker --connect tls://HOST:PORT; start one: edison worker scheduler",
        )
    _work(ctx.ensure_object(CliState), cluster_tls.read_address(request.connect), request)


def _work(state: CliState, address: ClusterAddress, request: WorkerRequest) -> None:
    name = request.name
    if name is not None and name != wire.worker_name(name):
        hint = "use letters, digits and -._@; 100 at most"
        raise UsageError(f"{name!r} is not a name for a worker", hint=hint)
    terminal, certificates = Terminal(state), cluster_tls.certificates_for(address, request.tls)
    require_dask("a cluster")
    # Dask takes a second to import, and is an extra.
    from edison_ci.features.cluster.worker import WorkerLoop, WorkerOptions, WorkerService

    project = proposal_terms.apply_base_terms(lookup.open_project(state))
    prepared = preparation.Preparation(
        project,
        model_keys.model_caller(project, offline=state.offline),
        key_environment(project).has,
    )
    terminal.note(f"edison {__version__}, Python {preparation.PYTHON}, {project.root}")
    for model in prepared.models():
        needs = f" ({', '.join(model.variables)})" if model.variables else ""
        if model.why_not:
            terminal.note(StyledText("not called", ODD), f" {model.name} {model.why_not}")
        else:
            terminal.note(StyledText("calls", GOOD), f" {model.name}{needs}")
    checks = _code_checks(terminal, project, allowed=request.allow_code)
    name = name or wire.worker_name(f"{socket.gethostname()}-{os.getpid()}")
    service = WorkerService(
        prepared.provider_for, checks, name=name, version=__version__, tell=terminal.note
    )

    def ready(reached: str) -> None:
        if terminal.json:
            terminal.document({"worker": name, "address": reached, "scheduler": str(address)})
        terminal.result(f"worker {name} at {reached} is ready for runs of {address}")
        flush(sys.stdout)

    options = WorkerOptions(address, certificates, request.grace, request.wait)

    async def work() -> None:
        await WorkerLoop(options, service, terminal.note).run(ready)

    asyncio.run(work())
    terminal.note("ended")


def _code_checks(terminal: Terminal, project: Project, *, allowed: bool) -> preparation.CodeChecks:
    """Return the code checks that runs may ask for; raises UsageError without a sandbox."""
    checks = (
        preparation.CodeChecks.allowed_by(project)
        if allowed
        else preparation.CodeChecks(project, None)
    )
    why_not = "the base allows no code" if allowed else "start it with --allow-code"
    for program in checks.programs:
        if not checks.allowed:
            terminal.note(StyledText("not run", ODD), f" {program}: {why_not}")
        else:
            terminal.note(StyledText("runs", GOOD), f" {program}")
    checks.require_sandbox()
    return checks


@worker.command("keys", cls=EdisonCommand)
@click.argument("machines", nargs=-1, metavar="[MACHINE]...")
@click.option(
    "--days",
    type=click.IntRange(1, 3_650),
    default=365,
    show_default=True,
    help="Days until the certificates expire.",
)
@tls_folder_option
@click.pass_obj
def keys(state: CliState, machines: tuple[str, ...], days: int, tls: Path | None) -> None:
    """Issue certificates for this machine, and for others.

    The first time it makes an authority of your own, whose certificates are the only ones that the
    parts of a cluster accept of each other. Later it issues new ones of the same authority. Copy
    the folder of each MACHINE there, and keep ca.key to yourself.

    Examples:
      edison worker keys
      edison worker keys build-1 build-2 --days 90
    """
    terminal, folder = Terminal(state), cluster_tls.tls_folder(tls)
    issued = cluster_tls.issue_certificates(folder, machines, days=days)
    if terminal.json:
        made = [
            {"machine": i.machine or None, "folder": str(i.folder), "until": i.until.isoformat()}
            for i in issued
        ]
        terminal.document({"certificates": made})
        return
    for certificate in issued:
        machine = certificate.machine or "this machine"
        place = f" {machine}: {certificate.folder}, until {certificate.until:%Y-%m-%d}"
        terminal.result(StyledText("issued", GOOD), place)
    for certificate in issued[1:]:
        folder, machine = certificate.folder, certificate.machine
        terminal.note(f"scp -r {folder}/. {machine}:.config/edison/cluster")


@worker.command("scheduler", cls=EdisonCommand)
@click.option(
    "--listen",
    default="tls://127.0.0.1:8786",
    show_default=True,
    metavar="ADDRESS",
    help="Where workers and runs connect; port 0 is any free one.",
)
@tls_folder_option
@click.pass_obj
def scheduler(state: CliState, listen: str, tls: Path | None) -> None:
    """Run the scheduler of a cluster, which knows its workers.

    It runs no code that it is sent, stores nothing, and serves no pages. Beyond this machine it
    listens with TLS only. Ctrl-C ends it.

    Examples:
      edison worker scheduler
      edison worker scheduler --listen tls://0.0.0.0:8786
    """
    terminal, address = Terminal(state), cluster_tls.read_address(listen)
    certificates = cluster_tls.certificates_for(address, tls)
    require_dask("a cluster")
    # Dask takes a second to import, and is an extra.
    from edison_ci.features.cluster.nodes import run_scheduler

    def ready(reached: str) -> None:
        if terminal.json:
            terminal.document({"scheduler": reached})
        terminal.result(f"scheduler at {reached}")
        flush(sys.stdout)
        terminal.note(f"workers: edison worker --connect {reached}")

    asyncio.run(run_scheduler(address, certificates, ready, terminal.note))
