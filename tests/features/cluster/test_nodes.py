"""A scheduler in a process of its own: whom it lets in, and what it never does."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import socket
import ssl
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from distributed import comm as dask_comm
from distributed.comm import tcp

from edison_ci.errors import CallFailed, UsageError
from edison_ci.features.cluster import nodes
from edison_ci.features.cluster.tls import (
    Certificates,
    issue_certificates,
    probe,
    read_address,
    read_certificates,
)
from tests import forked
from tests.timing import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def team(tmp_path: Path) -> Path:
    issue_certificates(tmp_path / "team", (), days=30)
    return tmp_path / "team"


@contextlib.contextmanager
def scheduler(team: Path, listen: str = "tls://127.0.0.1:0") -> Iterator[str]:
    """Run a scheduler, and yield its address."""
    words = ["worker", "scheduler", "--listen", listen, "--tls", str(team)]
    with forked.Popen(
        [sys.executable, "-P", "-m", "edison_ci", *words],
        cwd=team,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        try:
            line = process.stdout.readline()
            assert line.startswith("scheduler at "), process.stderr.read()
            yield line.split()[-1]
        finally:
            process.terminate()
        assert process.wait() == 0
        assert "Traceback" not in process.stderr.read()


def has_ipv6() -> bool:
    """Whether this machine has the address [::1]."""
    try:
        with socket.socket(socket.AF_INET6) as probed:
            probed.bind(("::1", 0))
    except OSError:
        return False
    return True


async def ask(address: str, certificates: Certificates, **message: Any) -> Any:
    """Send one operation as a client of Dask does, and return the reply."""
    dask: Any = dask_comm  # which has no types
    security: Any = certificates.security()
    comm = await dask.connect(address, **security.get_connection_args("client"))
    try:
        await comm.write({"reply": True, **message})
        return await asyncio.wait_for(comm.read(), PATIENCE_S)
    finally:
        comm.abort()
        await asyncio.sleep(0.05)  # the loop closes the socket


@pytest.mark.parametrize("changed", ["lacks read_bytes_rw", "would run code that it is sent"])
def test_a_dask_that_is_not_known_is_refused(changed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if changed.startswith("lacks"):
        monkeypatch.delattr(tcp, "read_bytes_rw")
    else:
        monkeypatch.setattr(nodes, "_refuse_pickle", lambda data, buffers=(): os.getpid)
    with pytest.raises(UsageError, match=f"distributed .* is not a version .*: it {changed}"):
        nodes.carry_plain_data()
    monkeypatch.undo()
    nodes.carry_plain_data()


def test_only_certificates_of_the_team_get_in(team: Path, tmp_path: Path) -> None:
    issue_certificates(tmp_path / "other", (), days=30)
    with scheduler(team, "tls://[::1]:0" if has_ipv6() else "tls://127.0.0.1:0") as address:
        place = read_address(address)
        asyncio.run(probe(place, read_certificates(team)))
        with pytest.raises(UsageError, match="both sides need certificates of one authority"):
            asyncio.run(probe(place, read_certificates(tmp_path / "other")))
        # One who does not check the scheduler is refused by it.
        context = read_certificates(tmp_path / "other").context()
        context.verify_mode = ssl.CERT_NONE
        assert asyncio.run(first_byte(address, context)) == b""
        assert asyncio.run(first_byte(address, read_certificates(team).context())) != b""
    with pytest.raises(CallFailed, match="no scheduler answers at"):
        asyncio.run(probe(place, read_certificates(team)))


async def first_byte(address: str, context: ssl.SSLContext) -> bytes:
    place = read_address(address)
    try:
        reader, writer = await asyncio.open_connection(place.host, place.port, ssl=context)
        try:
            return await reader.read(1)
        finally:
            writer.transport.abort()
            await asyncio.sleep(0.05)  # the loop closes the socket
    except OSError:
        return b""


def test_a_certificate_is_no_right_to_run_code(team: Path) -> None:
    """Everything by which a client of Dask runs code, or ends a cluster, is refused."""
    mark = team / "PWNED"
    code = pickle.dumps(os.mkdir)
    with scheduler(team) as address:
        own = read_certificates(team)
        for message in (
            {"op": "run_function", "function": code, "args": pickle.dumps((str(mark),))},
            {"op": "broadcast", "msg": {"op": "run", "function": code}},
            {"op": "register_scheduler_plugin", "plugin": code, "name": "x", "idempotent": False},
            {"op": "feed", "function": code, "interval": "1s"},
            {"op": "terminate"},
        ):
            assert asyncio.run(ask(address, own, **message)) is None
        graph = {"op": "identity", "serializers": ("pickle",), "more": _Pickled(str(mark))}
        with contextlib.suppress(OSError, pickle.UnpicklingError):
            asyncio.run(ask(address, own, **graph))
        assert asyncio.run(ask(address, own, op="identity"))["type"] == "PlainScheduler"
    assert not mark.exists()


class _Pickled:
    """Makes a folder where it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (self.path,)


def test_a_plain_scheduler_stays_on_this_machine(team: Path) -> None:
    with scheduler(team, "tcp://127.0.0.1:0") as address:
        asyncio.run(probe(read_address(address), None))
        with pytest.raises(UsageError, match="refuses the certificate of this machine, or speaks"):
            asyncio.run(probe(read_address(address)._replace(tls=True), read_certificates(team)))
