"""Workflows for a new repository, with edison as a wheel while there is no release.

The workflows install edison from a folder of the repository: its dependencies, pinned by hash, and
edison as a wheel, built from the installation. The build is reproducible, so a reviewer of the
commit can build the wheel again and compare.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import edison_ci
from edison_ci.errors import UsageError
from edison_ci.resources import resource_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = ".github/edison"
WORKFLOWS = ".github/workflows"
_SINGLE, _BATCH = "edison.yml", "edison-batch.yml"
_INSTALLED = ("install.sh", "run.txt")
_SHIPPED = ("schemas", "examples", "requirements")
_NOT_PACKED = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"}
_ANY_DAY = (1980, 1, 1, 0, 0, 0)
_WHEEL = "Wheel-Version: 1.0\nGenerator: edison-ci\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def github_files(
    *, project: str = ".", branch: str = "main", batch: bool = False
) -> Iterator[tuple[str, bytes]]:
    """Yield path and content of the files for GitHub, for a project in a folder."""
    yield from workflows(project=project, branch=branch, batch=batch)
    for name in _INSTALLED:
        yield f"{FOLDER}/{name}", (resource_folder("requirements") / name).read_bytes()
    name, data = build_wheel()
    yield f"{FOLDER}/{name}", data


def workflows(
    *, project: str = ".", branch: str = "main", batch: bool = False
) -> Iterator[tuple[str, bytes]]:
    """Yield path and content of the workflows, for a project in a folder and a branch.

    With `batch`, pull requests are evaluated with answers that are bought in batches.
    """
    for path in sorted((resource_folder("examples") / "workflows").glob("*.yml")):
        if path.name == (_SINGLE if batch else _BATCH):
            continue
        name = _SINGLE if path.name == _BATCH else path.name
        text = path.read_text(encoding="utf-8")
        if project != ".":
            text = text.replace("  PROJECT: . #", f"  PROJECT: {json.dumps(project)} #")
        if branch != "main":
            text = text.replace("branches: [main]", f"branches: [{json.dumps(branch)}]")
        yield f"{WORKFLOWS}/{name}", text.encode()


def build_wheel() -> tuple[str, bytes]:
    """Return edison as a wheel: its file name and its bytes."""
    from importlib import metadata  # slow to load

    try:
        known = metadata.distribution("edison-ci")
    except metadata.PackageNotFoundError:
        raise UsageError(
            "edison is not installed, so no wheel can be built", hint="install it with pip first"
        ) from None
    about = f"edison_ci-{known.version}.dist-info"
    files = dict(_code())
    for file in known.files or ():
        if file.parts[0] == about and file.name not in _NOT_PACKED:
            files[file.as_posix()] = Path(str(file.locate())).read_bytes()
    files[f"{about}/WHEEL"] = _WHEEL.encode()  # replaces that of the original builder
    record = f"{about}/RECORD"
    listed = [f"{name},{_digest(files[name])},{len(files[name])}" for name in sorted(files)]
    files[record] = "".join(f"{row}\n" for row in [*listed, f"{record},,"]).encode()
    return f"edison_ci-{known.version}-py3-none-any.whl", _zip(files)


def _code() -> Iterator[tuple[str, bytes]]:
    """Yield the files of the package as in a wheel; a checkout has some at its root."""
    package = Path(edison_ci.__file__).parent
    for path in package.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            yield f"edison_ci/{path.relative_to(package).as_posix()}", path.read_bytes()
    if (package / "_shipped").is_dir():
        return
    for kind in _SHIPPED:
        for path in resource_folder(kind).rglob("*"):
            name = path.relative_to(resource_folder(kind)).as_posix()
            if path.is_file() and _belongs(kind, name):
                yield f"edison_ci/_shipped/{kind}/{name}", path.read_bytes()


def _belongs(kind: str, name: str) -> bool:
    """Whether a file of a checkout is shipped; leftovers of running an example are not."""
    if kind == "requirements":
        return name in _INSTALLED
    left = "__pycache__" in name or ("/.edison/" in name and not name.endswith("trust.yaml"))
    return not left


def _digest(data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
    return f"sha256={digest}"


def _zip(files: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _ANY_DAY)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, files[name])
    return stream.getvalue()
