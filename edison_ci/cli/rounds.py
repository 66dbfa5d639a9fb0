"""When has somebody changed a file of the project?"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from edison_ci.config.project import ProjectFile

    Stamps = dict[Path, tuple[int, int]]

_POLL_S = 0.3


def stamps(root: Path, file: ProjectFile) -> Stamps:
    """Return time and size of every file that a run may depend on."""
    paths = file.paths
    folders = (paths.experiments, paths.prompts, paths.rubrics, paths.datasets, "judges", "checks")
    files = [root / n for n in ("edison.yaml", paths.models, "quarantine.yaml")]
    files.append(root / ".edison" / "trust.yaml")
    for folder in folders:
        files += (root / folder).rglob("*")
    found: Stamps = {}
    for path in files:
        with contextlib.suppress(OSError):
            status = path.stat()
            found[path] = (status.st_mtime_ns, status.st_size)
    return found


def wait_for_a_change(root: Path, file: ProjectFile, seen: Stamps) -> None:
    """Return when a file differs from what was seen, and has stayed so for a moment."""
    while stamps(root, file) == seen:
        time.sleep(_POLL_S)
    last = stamps(root, file)
    while True:
        time.sleep(_POLL_S)
        now = stamps(root, file)
        if now == last:
            return
        last = now
