"""Runs a module of edison and records every message that it exchanges with a cluster.

    RECORD_TO=FOLDER RECORDED=MODULE python -m benchmarks.recorded_messages [ARGUMENT]...

The messages are written before they are encrypted and after they are decrypted, to one file for
each process.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path
from typing import Any

from distributed.comm import tcp


def record(folder: Path) -> None:
    """Let Dask in this process and its forks record what it sends and receives."""
    module: Any = tcp
    send, receive = module.to_frames, module.from_frames

    def keep(frames: list[Any]) -> None:
        with (folder / str(os.getpid())).open("ab") as stream:
            for frame in frames:
                stream.write(bytes(frame))

    async def recorded_send(*given: Any, **named: Any) -> Any:
        frames = await send(*given, **named)
        keep(frames)
        return frames

    async def recorded_receive(frames: list[Any], *given: Any, **named: Any) -> Any:
        keep(frames)
        return await receive(frames, *given, **named)

    module.to_frames, module.from_frames = recorded_send, recorded_receive


if __name__ == "__main__":
    record(Path(os.environ["RECORD_TO"]))
    sys.argv[0] = os.environ["RECORDED"]
    runpy.run_module(os.environ["RECORDED"], run_name="__main__")
