"""A Dask scheduler that carries plain data only.

Dask is made to run any function that a client sends, as a pickle. Here it only says which workers
there are and connects to them: every operation but the named ones is blocked, and nothing is ever
unpickled, so that a certificate of the team is no right to run code on its machines. It serves no
pages, writes nothing, and reads no settings of Dask from files and variables.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
import signal
import struct
from typing import TYPE_CHECKING, Any

import dask.config
from distributed import Scheduler, SchedulerPlugin, Worker
from distributed.comm import tcp
from distributed.protocol import core as dask_messages
from distributed.protocol import pickle as dask_pickle
from distributed.protocol.serialize import to_serialize

from edison_ci.errors import UsageError
from edison_ci.extras import DISTRIBUTED, install_command
from edison_ci.numeric import counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from distributed.security import Security

    from edison_ci.features.cluster.tls import Certificates, ClusterAddress

logger = logging.getLogger(__name__)

MOST_BYTES = 256_000_000
"""Bytes of one message at most."""
MOST_VALUES = 1_000_000
"""Values of one message at most: a mapping of one byte takes 64 in memory."""
_ONE_FRAME = struct.pack("Q", 1)
_CONTAINERS = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}
"""Tags of msgpack for lists and mappings: bytes of their length, and values for each item."""
_TEXTS = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
"""Tags of texts and bytes: bytes of their length."""
_NUMBERS = {
    **dict.fromkeys((0xC0, 0xC2, 0xC3), 0),
    **{0xCA: 4, 0xCB: 8},
    **{tag + step: 2**step for tag in (0xCC, 0xD0) for step in range(4)},
}
"""Tags of nothing, true, false and numbers: bytes that follow."""
_SETTINGS = {
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.comm.compression": None,
    "distributed.comm.timeouts.connect": "10s",
    "distributed.diagnostics.nvml": False,
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.worker-ttl": "30s",
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.terminate": False,
    "distributed.worker.profile.enabled": False,
}
_INTERNALS: tuple[tuple[Any, str], ...] = (
    (tcp, "read_bytes_rw"),
    (tcp, "unpack_frames"),
    (tcp, "from_frames"),
    (dask_pickle, "loads"),
    (Scheduler, "start_http_server"),
    (Worker, "start_http_server"),
    (Worker, "plugin_add"),
    (Worker, "handle_scheduler"),
    (Worker, "_register_with_scheduler"),
)
"""What is replaced in Dask: where one is missing, a node might do what it must not."""
_OF_SCHEDULERS = frozenset({"heartbeat_worker", "identity", "register-worker"})
_STREAMED_TO_SCHEDULERS = frozenset({"keep-alive", "worker-status-change"})


class ForeignMessage(OSError):
    """A message that no node of a cluster sends: it ends the connection."""


def carry_plain_data() -> None:
    """Make Dask refuse pickles and floods in this process, and forget the settings of its user.

    Raises:
        UsageError: this version of Dask cannot be made to.
    """
    if lacking := [name for owner, name in _INTERNALS if not hasattr(owner, name)]:
        raise _unknown_dask(f"lacks {', '.join(lacking)}")
    dask.config.refresh(paths=[], env={})
    dask.config.set(_SETTINGS)
    dask_pickle.loads = _refuse_pickle
    for name, limit in (
        ("read_bytes_rw", _limited),
        ("unpack_frames", _of_one_frame),
        ("from_frames", _of_few_values),
    ):
        original = getattr(tcp, name)
        if not hasattr(original, "limited"):
            limited = limit(original)
            limited.limited = True
            setattr(tcp, name, limited)
    # Dask gives some loggers their own handler when it is imported.
    for name in ("asyncio", "distributed", "distributed.client", "tornado", "tornado.application"):
        theirs = logging.getLogger(name)
        theirs.handlers[:] = [_Said()]
        theirs.propagate = False
    if not _refuses_code():
        raise _unknown_dask("would run code that it is sent")


def _refuses_code() -> bool:
    try:
        dask_messages.loads(dask_messages.dumps({"code": to_serialize(_Said)}))
    except pickle.UnpicklingError:
        return True
    return False


def _unknown_dask(why: str) -> UsageError:
    return UsageError(
        f"distributed {DISTRIBUTED.version()} is not a version that edison knows: it {why}",
        hint=install_command("dask"),
    )


def _refuse_pickle(x: Any, *, buffers: Any = ()) -> Any:
    raise pickle.UnpicklingError("this cluster carries plain data only")


def _limited(read: Callable[..., Any]) -> Any:
    """Return what reads the bytes of a message, for messages of a limited size."""

    async def read_limited(stream: Any, n: int) -> Any:
        if n > MOST_BYTES:
            raise ForeignMessage(f"a message of {n:,} bytes; at most {MOST_BYTES:,} are read")
        return await read(stream, n)

    return read_limited


def _of_one_frame(unpack: Callable[..., Any]) -> Any:
    """Return what reads the list of frames: plain data has one, and neither pickles nor bombs."""

    def unpack_one(packed: Any, **options: Any) -> Any:
        if bytes(packed[:8]) != _ONE_FRAME:
            raise ForeignMessage("a message that is not of one frame")
        return unpack(packed, **options)

    return unpack_one


def _of_few_values(read: Callable[..., Any]) -> Any:
    """Return what makes values of a message, for messages of a limited number of them."""

    async def read_few(frames: Any, **options: Any) -> Any:
        _refuse_many_values(memoryview(frames[0]))
        return await read(frames, **options)

    return read_few


def _refuse_many_values(packed: memoryview) -> None:
    """Raise ForeignMessage for a message of more values than are read, before any is made."""
    at, values, expected = 0, 0, 1
    while expected and at < len(packed):
        tag, at = packed[at], at + 1
        values, expected = values + 1, expected - 1
        if 0x80 <= tag < 0xA0:
            expected += (tag & 15) * (2 if tag < 0x90 else 1)
        elif 0xA0 <= tag < 0xC0:
            at += tag & 31
        elif tag in _CONTAINERS:
            width, per_item = _CONTAINERS[tag]
            expected += per_item * int.from_bytes(packed[at : at + width], "big")
            at += width
        elif tag in _TEXTS:
            width = _TEXTS[tag]
            at += width + int.from_bytes(packed[at : at + width], "big")
        elif 0xC0 <= tag < 0xE0:
            if tag not in _NUMBERS:
                raise ForeignMessage(f"a value of the unknown type {tag:#x}")
            at += _NUMBERS[tag]
        if values + expected > MOST_VALUES:
            raise ForeignMessage(f"a message of more than {MOST_VALUES:,} values")


class _Said(logging.Handler):
    """Shows messages of Dask among those of edison, as details."""

    def emit(self, record: logging.LogRecord) -> None:
        logger.debug("dask", extra={"said": record.getMessage()[:500]})


class _Members(SchedulerPlugin):
    """Reports which workers come and go."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        """Report a new worker."""
        self._tell(f"worker {worker} has come; {counted(len(scheduler.workers), 'worker')}")

    def remove_worker(self, scheduler: Scheduler, worker: str, **_: Any) -> None:
        """Report a worker that has left, or no longer answers."""
        self._tell(f"worker {worker} has gone; {counted(len(scheduler.workers), 'worker')}")


class PlainScheduler(Scheduler):
    """A scheduler that knows the workers, and runs nothing."""

    def __init__(
        self, address: ClusterAddress, security: Security | None, tell: Callable[[str], None]
    ) -> None:
        super().__init__(
            host=address.written_host,
            port=address.port,
            protocol="tls" if security else "tcp",
            security=security,
            dashboard=False,
            extensions={},
            plugins=(_Members(tell),),
        )
        _keep(self, _OF_SCHEDULERS, _STREAMED_TO_SCHEDULERS)

    def start_http_server(self, *_: Any, **__: Any) -> None:
        """Serve no pages."""


def ignore(*_: Any, **__: Any) -> None:
    """Do nothing: an unknown message on a stream would end the connection."""


def _keep(node: Any, operations: frozenset[str], streamed: frozenset[str]) -> None:
    """Leave a node with these operations, and ignore everything else on its streams."""
    node.handlers = {name: node.handlers[name] for name in operations}
    for name in node.stream_handlers.keys() - streamed:
        node.stream_handlers[name] = ignore


async def run_scheduler(
    address: ClusterAddress,
    certificates: Certificates | None,
    on_ready: Callable[[str], None],
    tell: Callable[[str], None],
) -> None:
    """Run a scheduler until SIGINT or SIGTERM; raises UsageError if it cannot listen.

    `on_ready` gets the address under which others reach it, `tell` who comes and goes.
    """
    carry_plain_data()
    security = None if certificates is None else certificates.security()
    try:
        scheduler = await PlainScheduler(address, security, tell)
    except (OSError, RuntimeError, ValueError) as error:
        cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
        raise UsageError(
            f"a scheduler cannot listen at {address}: {getattr(cause, 'strerror', None) or cause}",
            hint="the port may be in use: port 0 picks a free one",
        ) from None
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    on_ready(scheduler.address)
    await ended.wait()
    await scheduler.close()
