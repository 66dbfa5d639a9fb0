"""Ports that a test may rely on: no other process is given one of them meanwhile."""

from __future__ import annotations

import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def held_port() -> Iterator[int]:
    """Yield a port that refuses connections, until a server that is told to listens on it.

    Asking for a free port and closing it again would leave it to whoever asks next. The kernel
    gives nobody a port that is bound, and lets a server bind it once more, as both may share it
    and this one does not listen.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]
