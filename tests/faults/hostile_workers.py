"""Workers of a team that attack the runs of others: `-m tests.faults.hostile_workers ADDRESS`.

They have certificates of the team, in EDISON_TLS, and end with the standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import sys
import tempfile
from pathlib import Path

from edison_ci.features.cluster.nodes import carry_plain_data
from edison_ci.features.cluster.tls import read_address, read_certificates, tls_folder
from edison_ci.features.cluster.worker import PlainWorker
from tests.features.cluster.test_attacks import FRAMES, MESSAGES, Raw, message
from tests.features.cluster.test_executor import Odd

BOMB = message(b"\xdd" + struct.pack(">I", 30_000_000) + b"\x80" * 30_000_000)
"""30 MB that would take 2 GB."""


async def main(address: str) -> None:
    """Serve runs until the input ends."""
    carry_plain_data()
    security = read_certificates(tls_folder()).security()
    services = {
        "bomb": Raw(BOMB),
        "endless": Raw(FRAMES["a frame without end"][0]),
        "leaving": Raw(None),
        "costly": Odd(MESSAGES["a negative cost"][0]),
        "thief": Odd(MESSAGES["a call of another worker"][0]),
    }
    async with contextlib.AsyncExitStack() as stack:
        for name, service in services.items():
            service.name = name
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            worker = PlainWorker(read_address(address), Path(folder), service, security)
            await stack.enter_async_context(worker)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
