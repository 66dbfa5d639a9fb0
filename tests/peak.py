"""How much memory did a process need at most?

`ru_maxrss` cannot be asked: Linux hands it on through `exec`, so that a child of a large process
looks large. What the kernel says of the process's own memory starts anew with its program.
"""

from __future__ import annotations

MEASURED = """\
import atexit, os, runpy
from pathlib import Path
def tell():
    status = Path("/proc/self/status").read_text().splitlines()
    peak = next(line.split()[1] for line in status if line.startswith("VmHWM"))
    Path(os.environ["PEAK_FILE"]).write_text(peak)
atexit.register(tell)
runpy.run_module("edison_ci", run_name="__main__", alter_sys=True)
"""
"""Python that runs the command line and writes its peak, in kB, to the file in PEAK_FILE."""
