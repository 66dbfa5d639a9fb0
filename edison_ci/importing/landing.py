"""Imported files put into a project, without touching what is there, and told."""

from __future__ import annotations

import io
import os
import posixpath
import re
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.config.data_check import DataCheck
from edison_ci.config.load import inspect_project
from edison_ci.config.project import Paths, slug
from edison_ci.config.project_files import PROJECT, TRUST, ProjectFiles, only_errors
from edison_ci.config.trust import TrustedKey, TrustFile
from edison_ci.documents.files import WorkingTree, inside
from edison_ci.errors import ConfigError, UsageError
from edison_ci.importing.drafts import file_name
from edison_ci.importing.fidelity import Status
from edison_ci.importing.imported import Setting, schema_line
from edison_ci.importing.vendors import GITHUB_HOST
from edison_ci.importing.yaml_output import yaml_text
from edison_ci.resources import shipped

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from edison_ci.documents.marks import Json
    from edison_ci.errors import Location, Problem
    from edison_ci.importing.fidelity import Fidelity
    from edison_ci.importing.imported import Imported


_INDEX = re.compile(r"\[\d+\]")


class Line(NamedTuple):
    """Keys that became of the same kind of thing in the same way, told together."""

    status: Status
    where: Location
    """Where the first of them stands."""
    key: str
    times: int
    target: str
    note: str

    def __str__(self) -> str:
        several = f" ({self.times:,} times)" if self.times > 1 else ""
        target = f" -> {self.target}" if self.target else ""
        note = f": {self.note}" if self.note else ""
        return f"{self.where}  {self.key}{several}{target}{note}"


def lines_of(fidelity: Fidelity, status: Status) -> list[Line]:
    """Return what there is to say of the keys with a status, like ones together."""
    found: dict[tuple[str, str, str, str], Line] = {}
    for entry in fidelity.ordered():
        if entry.status is not status:
            continue
        general = _INDEX.sub("[]", entry.key)
        group = (entry.where.file, general, entry.target, entry.note)
        known = found.get(group)
        if known is None:
            line = Line(status, entry.where, entry.key, 1, entry.target, entry.note)
        else:
            line = known._replace(key=general, times=known.times + 1)
        found[group] = line
    return list(found.values())


def as_markdown(title: str, fidelities: Iterable[Fidelity], files: Iterable[str]) -> str:
    """Return the report as a page."""
    reports = list(fidelities)
    parts = [f"# {title}\n"]
    for status in (Status.UNSUPPORTED, Status.APPROXIMATED, Status.MAPPED):
        entries = [e for report in reports for e in report.ordered() if e.status is status]
        parts.append(f"## {status.capitalize()} ({len(entries)})\n")
        if entries:
            parts.append("| place | key | went to | remark |\n| --- | --- | --- | --- |")
            rows = ((str(e.where), e.key, e.target, e.note) for e in entries)
            parts += [f"| {' | '.join(map(_cell, row))} |" for row in rows]
            parts.append("")
    parts.append("## Files\n")
    parts += [f"- `{name}`" for name in files]
    return "\n".join(parts) + "\n"


def _cell(text: str) -> str:
    plain = re.sub(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]", " ", text)
    return re.sub(r"([|<>`\\*_\[\]])", r"\\\1", plain)


def name_for(path: Path) -> str:
    """Return what the import of a file is called: its stem, or its folder's name."""
    stem = path.name.partition(".")[0]
    if stem.lower() in ("promptfooconfig", "prompt", "config", ""):
        stem = path.resolve().parent.name
    return file_name(stem, "imported")


_IGNORED = """\
# Results, cache and locks stay on this machine. trust.yaml and schemas/ are committed.
.edison/*.db*
.edison/cache/
.edison/locks/
"""
_GITHUB_KEY = "GITHUB_TOKEN"


@dataclass(frozen=True, slots=True)
class Target:
    """A folder, and the project in it if there is one."""

    root: Path
    setting: Setting
    is_project: bool


def target_at(root: Path) -> Target:
    """Return the folder that an import goes to; a project in it must be readable."""
    if root.exists() and not root.is_dir():
        raise UsageError(f"{str(root)!r} is a file", hint="give the name of a folder")
    if not (root / PROJECT).is_file():
        trust = ProjectFiles(WorkingTree(root)).trust()
        if not os.path.lexists(root / TRUST):  # a new project brings its own
            trust = TrustFile(keys=(TrustedKey(env=_GITHUB_KEY, hosts=(GITHUB_HOST,)),))
        return Target(root, Setting(Paths.model_construct(), trust=trust), False)
    files = ProjectFiles(WorkingTree(root))
    header = files.project()
    trust = files.trust()
    if header is None:
        raise ConfigError(only_errors(files.problems))
    files.models(header.paths.models)
    document = files.documents.get(header.paths.models)
    value = document.value if document is not None else {}
    models = {k: v for k, v in value.items() if k != "version"} if isinstance(value, dict) else {}
    judge = header.defaults.judge
    return Target(root, Setting(header.paths, models, judge, trust), True)


@dataclass(frozen=True, slots=True)
class Landing:
    """What would be written, and what our own loader says of it."""

    target: Target
    files: dict[str, str]
    warnings: tuple[Problem, ...] = ()

    def write(self) -> None:
        """Write the files; none that exists is touched, and after a failure none is left."""
        written: list[Path] = []
        try:
            for name, text in self.files.items():
                written.append(_placed(self.target.root, name, text))
        except BaseException:
            for path in written:
                with suppress(OSError):
                    path.unlink()
            raise


def prepare(target: Target, imports: Sequence[Imported]) -> Landing:
    """Return the files of some imports, after our own loader has read them.

    Raises UsageError if one of them exists or a model is missing from the registry, and
    ConfigError if the project would not be valid.
    """
    files: dict[str, str] = {}
    for each in imports:
        for path, text in each.files.items():
            if files.setdefault(path, text) != text:
                raise UsageError(
                    f"two imported files would be {path}",
                    hint="import them one by one, with --name",
                )
    files |= _shared_files(target, imports)
    there = [path for path in files if os.path.lexists(target.root / path)]
    if there:
        more = f" and {len(there) - 1} more" if len(there) > 1 else ""
        raise UsageError(
            f"{there[0]}{more} exists already; nothing was written",
            hint="choose another name with --name, or another folder with --into",
        )
    return Landing(target, files, _checked(target, files))


def with_report(landing: Landing, imports: Sequence[Imported]) -> Landing:
    """Return the same with the report as a page beside edison.yaml."""
    name = f"{imports[0].name}-import.md"
    if os.path.lexists(landing.target.root / name):
        raise UsageError(f"{name} exists already; nothing was written", hint="rename or remove it")
    shown = [path for path in landing.files if not _is_schema(path)]
    title = f"Import of {', '.join(each.name for each in imports)}"
    page = as_markdown(title, [each.fidelity for each in imports], shown)
    return replace(landing, files={**landing.files, name: page})


def _shared_files(target: Target, imports: Sequence[Imported]) -> dict[str, str]:
    """Return edison.yaml, the registry and the rest of a new project."""
    models = {name: entry for each in imports for name, entry in each.models.items()}
    registry = target.setting.paths.models
    if os.path.lexists(target.root / registry) and models:
        lines = " ".join(yaml_text(dict(models)).splitlines())
        raise UsageError(
            f"{registry} lacks {', '.join(models)}; nothing was written",
            hint=f"add to it, and import again: {_flow(models) or lines}",
        )
    files: dict[str, str] = {}
    if models:
        listed: dict[str, Json] = {"version": 1, **models}
        files[registry] = schema_line(posixpath.dirname(registry), "models") + yaml_text(listed)
    if target.is_project:
        return files
    files[PROJECT] = schema_line("", "edison") + yaml_text(_project(imports))
    asked = any(entry.get("key_env") == _GITHUB_KEY for entry in models.values())
    if asked and not os.path.lexists(target.root / TRUST):
        keys: list[Json] = [{"env": _GITHUB_KEY, "hosts": [GITHUB_HOST]}]
        files[TRUST] = schema_line(".edison", "trust") + yaml_text({"version": 1, "keys": keys})
    for path in sorted(shipped("schemas").glob("*.json")):
        files[f".edison/schemas/{path.name}"] = path.read_text(encoding="utf-8")
    files = {n: t for n, t in files.items() if not (_is_schema(n) and (target.root / n).exists())}
    if not os.path.lexists(target.root / ".gitignore"):
        files[".gitignore"] = _IGNORED
    return files


def _is_schema(name: str) -> bool:
    return name.startswith(".edison/schemas/")


def _flow(models: Mapping[str, dict[str, Json]]) -> str:
    return "; ".join(yaml_text({name: entry}).strip() for name, entry in models.items())


def _project(imports: Sequence[Imported]) -> dict[str, Json]:
    first = imports[0]
    defaults: dict[str, Json] = {"model": first.model}
    judge = next((each.judge for each in imports if each.judge is not None), None)
    if judge is not None:
        defaults["judge"] = judge
    defaults["budget_usd"] = 5
    project: dict[str, Json] = {"version": 1, "project": slug(first.name) or "imported"}
    if first.description:
        project["description"] = first.description[:1_000]
    return {**project, "defaults": defaults}


# --- checking -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Overlay:
    """A tree of files that are not written yet, over those that are there."""

    files: dict[str, str]
    below: WorkingTree
    _folders: dict[str, set[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for path in self.files:
            self._folders.setdefault(posixpath.dirname(path), set()).add(posixpath.basename(path))

    def open(self, path: str, *, max_bytes: int | None = None) -> BinaryIO:
        """Open a file of the import, or one that is there."""
        text = self.files.get(inside(path))
        if text is None:
            return self.below.open(path, max_bytes=max_bytes)
        return io.BytesIO(text.encode())

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, of both."""
        return sorted(self._folders.get(folder, set()) | {*self.below.names(folder)})

    def exists(self, path: str) -> bool:
        """Whether one of both has such a file."""
        return path in self.files or self.below.exists(path)


def _checked(target: Target, files: dict[str, str]) -> tuple[Problem, ...]:
    """Return the warnings of our own loader about the files; an error is raised."""
    project, problems = inspect_project(_Overlay(files, WorkingTree(target.root)))
    if project is not None:
        for experiment in project.experiments.values():
            if experiment.path in files:
                problems = [*problems, *DataCheck(project, experiment).run().problems]
    ours = [problem for problem in problems if problem.where.file in files]
    if only_errors(ours):
        raise ConfigError(only_errors(ours))
    return tuple(ours)


# --- writing --------------------------------------------------------------------------------------


def _placed(root: Path, name: str, text: str) -> Path:
    path = root / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not Path(os.path.realpath(path.parent)).is_relative_to(os.path.realpath(root)):
            raise UsageError(
                f"{name} would leave the project", hint="see where its folder links to"
            )
        with path.open("xb") as stream:  # x: never overwrites, whatever happens in between
            stream.write(text.encode())
    except FileExistsError:
        raise UsageError(
            f"{name} exists already; nothing was written", hint="choose another name with --name"
        ) from None
    except OSError as error:
        raise UsageError(
            f"{str(path)!r} cannot be written: {error.strerror}",
            hint="give a folder that you may write",
        ) from None
    return path
