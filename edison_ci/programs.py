"""Where other programs are found: on the machine, and never in the repository that is looked at."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def search_path() -> str:
    """Return PATH without relative entries, which would find programs in the repository."""
    entries = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(entry for entry in entries if Path(entry).is_absolute())


def find_program(name: str) -> str | None:
    """Return the path of a program, or None."""
    return shutil.which(name, path=search_path())
