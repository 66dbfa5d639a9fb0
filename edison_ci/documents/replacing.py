"""How is a file of a project replaced without anybody ever meeting half of it?"""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING

from edison_ci.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


def replace_file(path: Path, data: bytes) -> None:
    """Write a file that is there already, whole or not at all; its mode stays."""
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.part")
    try:
        with aside.open("xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        aside.chmod(path.stat().st_mode & 0o777)
        aside.replace(path)
    except OSError as error:
        raise UsageError(
            f"{path.name} cannot be written: {error.strerror}", hint="look at its permissions"
        ) from None
    finally:
        aside.unlink(missing_ok=True)
