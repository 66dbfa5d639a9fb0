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
import os
import re
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import edison_ci
from edison_ci._dataclass import dataclass
from edison_ci.config import sealed
from edison_ci.errors import UsageError
from edison_ci.git import repository as git
from edison_ci.git.host import RUN_WORKFLOW
from edison_ci.resources import resource_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from edison_ci.config.models import Model
    from edison_ci.config.sealed import SecretsFile
    from edison_ci.config.sections import Notification

FOLDER = ".github/edison"
WORKFLOWS = ".github/workflows"
_BATCH = "edison-batch.yml"
FURTHER = {
    "push": "edison-push.yml",
    "schedule": "edison-schedule.yml",
    "refine": "edison-refine.yml",
    "fork-comment": "edison-fork-comment.yml",
    "by-hand": "edison-by-hand.yml",
    "run": RUN_WORKFLOW,
    "approvals": "edison-approvals.yml",
}
"""Workflows beside that for pull requests, by the names that select them."""
_KEYS = re.compile(
    r"^( +)(# the keys that models\.yaml names.*\n)"
    r"((?:\1[A-Za-z_][A-Za-z0-9_]*: \$\{\{ (?:secrets|vars)\.[^\n]*\n)*)",
    re.MULTILINE,
)
"""The place for keys in the environment of a step, with the keys that are there."""
_TOLD = "# what the notifications of edison.yaml name, each a secret of the repository:\n"
_TOLD_LINES = re.compile(rf"^( +){re.escape(_TOLD)}(?:\1[^\n]*secrets\.[^\n]*\n)*", re.MULTILINE)
_TOKEN = "GITHUB_TOKEN: ${{ github.token }} # for the issues of alerts\n"
_ISSUES = "      issues: write # to open and close the issues of alerts\n"
_READS = "      contents: read # to check out the repository\n"
_INSTALLED = ("install.sh", "run.txt")
_SHIPPED = ("schemas", "examples", "requirements")
_NOT_PACKED = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"}
_ANY_DAY = (1980, 1, 1, 0, 0, 0)
_WHEEL = "Wheel-Version: 1.0\nGenerator: edison-ci\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


class Variables(NamedTuple):
    """The environment variables that the models of a project need."""

    secrets: tuple[str, ...] = ()
    """Names of keys."""
    plain: tuple[str, ...] = ()
    """Names of addresses, which are variables of the repository and no secrets."""

    @classmethod
    def of(cls, models: Iterable[Model], secrets: SecretsFile) -> Variables:
        """Return the variables that models name, each once, and that of the private key."""
        models = list(models)
        keys = dict.fromkeys(name for model in models for name in model.keys.values())
        if secrets.public_key is not None:
            keys[sealed.PRIVATE_KEY] = None
        plain = dict.fromkeys(m.base_url_env for m in models if m.base_url_env is not None)
        return cls(tuple(keys), tuple(name for name in plain if name not in keys))

    @property
    def lines(self) -> dict[str, str]:
        """The lines of a workflow that pass the variables on, by name."""
        both = (("secrets", self.secrets), ("vars", self.plain))
        return {
            name: f"{name}: ${{{{ {kind}.{name} }}}}\n" for kind, names in both for name in names
        }


def with_variables(text: str, variables: Variables) -> str:
    """Return a workflow whose steps get these variables as well, at the place for keys."""

    def added(place: re.Match[str]) -> str:
        indent, comment, there = place.groups()
        passed = {line.strip().partition(":")[0] for line in there.splitlines()}
        more = (line for name, line in variables.lines.items() if name not in passed)
        return f"{indent}{comment}{there}" + "".join(f"{indent}{line}" for line in more)

    return _KEYS.sub(added, text)


def workflow_files(root: Path) -> Iterator[tuple[str, str]]:
    """Yield the workflows of the repository of a project, by path from the project."""
    repository = git.Repository.find(root)
    top = repository.root if repository is not None else root
    for path in sorted((top / WORKFLOWS).glob("*.y*ml")):
        inside = Path(os.path.realpath(path)).is_relative_to(os.path.realpath(top))
        if inside and path.is_file() and not path.is_symlink():
            yield os.path.relpath(path, root).replace(os.sep, "/"), path.read_text("utf-8")


def notification_secrets(notifications: Iterable[Notification]) -> tuple[str, ...]:
    """Return the variables that reach the recipients of notifications, each once."""
    names: list[str | None] = []
    for recipient in notifications:
        names += [recipient.webhook_env, recipient.secret_env]
        if recipient.smtp is not None:
            names += [recipient.smtp.host_env, recipient.smtp.user_env, recipient.smtp.password_env]
    return tuple(dict.fromkeys(name for name in names if name is not None))


def with_notifications(text: str, notifications: Iterable[Notification]) -> str:
    """Return a workflow whose steps with keys can notify these recipients, and no others."""
    notifications = tuple(notifications)
    issues = any(recipient.github_issues for recipient in notifications)

    def added(place: re.Match[str]) -> str:
        indent, _, there = place.groups()
        passed = {line.strip().partition(":")[0] for line in there.splitlines()}
        more = [name for name in notification_secrets(notifications) if name not in passed]
        lines = [_TOLD] if more else []
        lines += [f"{name}: ${{{{ secrets.{name} }}}}\n" for name in more]
        lines += [_TOKEN] if issues and "GITHUB_TOKEN" not in {*passed, *more} else []
        return place[0] + "".join(f"{indent}{line}" for line in lines)

    text = _KEYS.sub(added, without_notifications(text))
    return text.replace(_READS, f"{_READS}{_ISSUES}") if issues else text


def without_notifications(text: str) -> str:
    """Return a workflow without notifications."""
    text = _TOLD_LINES.sub("", text).replace(_ISSUES, "")
    return re.sub(rf"(?m)^ +{re.escape(_TOKEN)}", "", text)


def without_variables(text: str) -> str:
    """Return a workflow without the keys that models name."""
    return _KEYS.sub(r"\1\2", text)


@dataclass(frozen=True, slots=True)
class WorkflowChoice:
    """Which workflows are written, and for which repository."""

    further: tuple[str, ...] = ()
    """Names of FURTHER; the workflow for pull requests is always written."""
    batch: bool = False
    """Whether pull requests are evaluated with answers that are bought in batches."""
    project: str = "."
    """The folder of the project in the repository."""
    branch: str = "main"
    """The default branch."""
    variables: Variables = Variables()
    notifications: tuple[Notification, ...] = ()
    """The recipients of scheduled runs; other workflows may run what strangers propose."""


def github_files(choice: WorkflowChoice) -> Iterator[tuple[str, bytes]]:
    """Yield path and content of the files for GitHub."""
    yield from workflows(choice)
    for name in _INSTALLED:
        yield f"{FOLDER}/{name}", (resource_folder("requirements") / name).read_bytes()
    name, data = build_wheel()
    yield f"{FOLDER}/{name}", data


def workflows(choice: WorkflowChoice) -> Iterator[tuple[str, bytes]]:
    """Yield path and content of the chosen workflows."""
    sources = {"edison.yml": _BATCH if choice.batch else "edison.yml"}
    sources |= {file: file for name, file in FURTHER.items() if name in choice.further}
    for name, source in sources.items():
        path = resource_folder("examples") / "workflows" / source
        text = without_variables(path.read_text(encoding="utf-8"))
        text = with_variables(text, choice.variables)
        if source == FURTHER["schedule"]:
            text = with_notifications(text, choice.notifications)
        if choice.project != ".":
            text = text.replace("  PROJECT: . #", f"  PROJECT: {json.dumps(choice.project)} #")
        if choice.branch != "main":
            text = text.replace("branches: [main]", f"branches: [{json.dumps(choice.branch)}]")
        yield f"{WORKFLOWS}/{name}", text.encode()


def build_wheel() -> tuple[str, bytes]:
    """Return edison as a wheel: its file name and its bytes."""
    from importlib import metadata  # slow to load

    try:
        installed = metadata.distribution("edison-ci")
    except metadata.PackageNotFoundError:
        raise UsageError(
            "edison is not installed, so no wheel can be built", hint="install it with pip first"
        ) from None
    about = f"edison_ci-{installed.version}.dist-info"
    files = dict(_code())
    for file in installed.files or ():
        if file.parts[0] == about and file.name not in _NOT_PACKED:
            files[file.as_posix()] = Path(str(file.locate())).read_bytes()
    files[f"{about}/WHEEL"] = _WHEEL.encode()  # replaces that of the original builder
    record = f"{about}/RECORD"
    listed = [f"{name},{_digest(files[name])},{len(files[name])}" for name in sorted(files)]
    files[record] = "".join(f"{row}\n" for row in [*listed, f"{record},,"]).encode()
    return f"edison_ci-{installed.version}-py3-none-any.whl", _zip(files)


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
