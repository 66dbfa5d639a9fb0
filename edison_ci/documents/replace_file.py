"""Files of a project replaced whole or not at all."""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING

from edison_ci.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def replace_file(
    path: Path, data: bytes, *, just_before: Callable[[], object] | None = None
) -> None:
    """Write a file, whole or not at all; the mode of one that is there stays.

    `just_before` writes down that it changes: after all that may fail on the disk, and what raises
    there leaves the file as it was.
    """
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.part")
    try:
        with aside.open("xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        if path.exists():
            aside.chmod(path.stat().st_mode & 0o777)
        if just_before is not None:
            just_before()
        aside.replace(path)
    except OSError as error:
        raise UsageError(
            f"{path.name} cannot be written: {error.strerror}", hint="look at its permissions"
        ) from None
    finally:
        aside.unlink(missing_ok=True)
