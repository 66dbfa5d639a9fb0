"""Diagnosis: checks of this machine and of a project, without a run."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from edison_ci import __version__, feature
from edison_ci._dataclass import dataclass
from edison_ci.access import proposal_terms
from edison_ci.access.job import key_environment
from edison_ci.checks import child
from edison_ci.config import load, project_files, requirements, schema, validation
from edison_ci.documents import files, signatures
from edison_ci.errors import UsageError, sorted_problems
from edison_ci.extras import (
    EXTRAS,
    LITELLM,
    NOT_INSTALLED,
    faults_of,
    find_program,
    install_command,
    known_bad,
)
from edison_ci.numeric import counted, fixed
from edison_ci.providers import shared_cache as provider_shared_cache
from edison_ci.report import pdf
from edison_ci.resources import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator

Verdict = Literal["ok", "warn", "fail", "off"]
"""Off is what is optional and not installed; nothing that the project needs is missing for it."""
_MIN_FREE_BYTES = 200_000_000
_MIN_SQLITE = (3, 37)


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    verdict: Verdict
    what: str
    detail: str


def diagnose_machine(folder: Path) -> Iterator[Finding]:
    """Check Python, git, SQLite, the disk and optional libraries."""
    yield Finding("ok", "edison", __version__)
    yield Finding("ok", "python", sys.version.split()[0])
    yield _git()
    yield _sqlite(folder)
    yield _disk(folder)
    yield from map(_extra, EXTRAS)
    yield from _litellm()
    yield _browser()
    yield _SANDBOXES[child.sandbox()]
    yield from _startup_files()
    yield from _known_bad()


def _extra(name: str) -> Finding:
    """Check whether an extra is installed; what the project needs is checked separately."""
    faults = faults_of(name)
    if not faults:
        return Finding("ok", "extra", f"{name}: installed")
    unusable = any(not fault.endswith(NOT_INSTALLED) for fault in faults)
    problem = f"{', '.join(faults)}; for {EXTRAS[name]}: {install_command(name)}"
    return Finding("warn" if unusable else "off", "extra", f"{name}: {problem}")


def _browser() -> Finding:
    try:
        return Finding("ok", "browser", pdf.find_browser())
    except UsageError as error:
        chosen = bool(os.environ.get(pdf.VARIABLE))
        return Finding("warn" if chosen else "off", "browser", f"{error.message}; {error.hint}")


_SANDBOXES: dict[child.Sandbox, Finding] = {
    "namespaces": Finding(
        "ok", "sandbox", "namespaces: code runs without network, keys, homes and write access"
    ),
    "landlock": Finding(
        "ok",
        "sandbox",
        "Landlock and seccomp: code runs without network, keys, homes and write access, and may "
        "not change modes of files",
    ),
    "none": Finding(
        "warn",
        "sandbox",
        "none: code checks need --allow-code-without-sandbox, and a changed program of a pull "
        "request is not run",
    ),
}


def _git() -> Finding:
    path = find_program("git")
    if path is None:
        return Finding(
            "warn", "git", "not found; labels, --changed-since and pull requests need it"
        )
    try:
        version = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return Finding("warn", "git", f"{path} cannot be run")
    return Finding("ok", "git", version.stdout.strip().removeprefix("git version "))


def _sqlite(folder: Path) -> Finding:
    """Write to a temporary database in WAL mode: some file systems only claim to support it."""
    version = sqlite3.sqlite_version
    if sqlite3.sqlite_version_info < _MIN_SQLITE:
        return Finding("fail", "sqlite", f"{version} is too old; 3.37 or newer is needed")
    place = folder if os.access(folder, os.W_OK) else None
    try:
        with tempfile.TemporaryDirectory(dir=place) as temporary:
            connection = sqlite3.connect(Path(temporary) / "probe.db")
            try:
                mode = connection.execute("pragma journal_mode=wal").fetchone()[0]
                connection.execute("create table probe (x int) strict")
                connection.commit()
            finally:
                connection.close()
    except (sqlite3.Error, OSError) as error:
        problem = f"{version}, no WAL here ({error}); a slower journal is used"
        return Finding("warn", "sqlite", problem)
    return Finding("ok", "sqlite", f"{version}, journal mode {mode}")


def _disk(folder: Path) -> Finding:
    free = shutil.disk_usage(folder).free
    verdict: Verdict = "ok" if free > _MIN_FREE_BYTES else "warn"
    return Finding(verdict, "disk", f"{fixed(free / 1e9, 1)} GB free")


def _litellm() -> Iterator[Finding]:
    """Check the installed version without importing it, since it may be malicious."""
    fault, version = LITELLM.fault(), LITELLM.version()
    if version:
        bad = known_bad().about("litellm", version)
        verdict: Verdict = "fail" if bad else "warn" if fault else "ok"
        yield Finding(verdict, "litellm", fault or version)
    elif not fault:
        yield Finding("warn", "litellm", "installed, but its version is unknown")


def _known_bad() -> Iterator[Finding]:
    """Compare installed packages with the list of releases that have advisories."""
    import importlib.metadata  # takes longer to import than all other checks take

    advisories, count = known_bad(), 0
    for package in sorted({advisory.package for advisory in advisories.advisories} - {"litellm"}):
        with suppress(importlib.metadata.PackageNotFoundError):
            version = importlib.metadata.version(package)
            for bad in advisories.about(package, version):
                count += 1
                yield Finding("fail", "releases", f"{package} {version}: {bad.why} ({bad.id})")
    if not count:
        yield Finding(
            "ok", "releases", f"no known bad release installed (list of {advisories.date})"
        )


def _startup_files() -> Iterator[Finding]:
    """Find .pth files that run code when Python starts, as one compromised release did."""
    folders = [Path(entry) for entry in sys.path if entry.endswith("site-packages")]
    for folder in folders:
        for path in sorted(folder.glob("*.pth")):
            try:
                text = path.read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue
            lines = [line for line in text.splitlines() if line.startswith(("import ", "import\t"))]
            harmless = path.name.startswith(
                ("distutils-precedence", "__editable__", "a1_coverage", "_edison")
            )
            if lines and not harmless:
                yield Finding("warn", "startup", f"{path.name} runs code whenever Python starts")


NO_PROJECT = Finding("warn", "project", "none here; create one with edison init")


def diagnose_project(root: Path, *, offline: bool) -> Iterator[Finding]:
    """Check the files, keys, prices, shared cache and schemas of a project."""
    project, problems = load.inspect_project(files.WorkingTree(root), root=root)
    if project is not None:
        for experiment in project.experiments.values():
            problems += validation.DataCheck(project, experiment).run().problems
        yield from _missing(project)
    errors = len(project_files.only_errors(problems))
    if project is None or errors:
        yield Finding("fail", "project", f"{counted(errors, 'error')}; see edison validate")
    else:
        experiments = counted(len(project.experiments), "experiment")
        yield Finding("ok", "project", f"{project.file.project}: {experiments}")
    if project is not None:
        yield from _keys(project)
        yield _prices(project)
        yield from _cache(project, offline=offline)
    yield _schemas(root)


def _missing(project: load.Project) -> Iterator[Finding]:
    """Find requirements of the experiments that this installation does not meet."""
    for problem in sorted_problems(requirements.missing_in(project)):
        yield Finding("fail", "needed", f"{problem.where}: {problem.message} ({problem.hint})")


def _keys(project: load.Project) -> Iterator[Finding]:
    for env in sorted({env for model in project.models.values() for env in model.keys.values()}):
        source = "set" if os.environ.get(env) else "sealed" if project.has_key(env) else "not set"
        yield Finding("warn" if source == "not set" else "ok", "key", f"{env} is {source}")


def _cache(project: load.Project, *, offline: bool) -> Iterator[Finding]:
    """Try the shared cache of the project; a run continues without it."""
    if (entry := project.file.cache) is None:
        return
    terms = proposal_terms.apply_base_terms(project)
    cache_access = feature.required("shared_cache", "site")
    access = cache_access(terms, key_environment(terms), offline=offline)
    if access is None:
        why = "--offline" if offline else f"{entry.url_env} is not set"
        yield Finding("warn", "cache", f"not used: {why}")
        return
    problem = access.problem or asyncio.run(provider_shared_cache.probe_cache(access))
    if problem:
        yield Finding("warn", "cache", f"not used: {problem}")
    elif not access.keys:
        problem_or_use = (
            "results.public_keys of .edison/trust.yaml is empty: its answers decide nothing"
        )
        yield Finding("warn", "cache", problem_or_use)
    elif access.signer is None:
        problem_or_use = (
            f"answers are read; without a trusted key in {signatures.VARIABLE} none is written"
        )
        yield Finding("ok", "cache", problem_or_use)
    else:
        yield Finding("ok", "cache", "answers are read and written")


def _prices(project: load.Project) -> Finding:
    unknown = [m.name for m in project.models.values() if project.prices.price_of(m) is None]
    if unknown:
        return Finding("warn", "prices", f"of {project.prices.date}; unknown: {', '.join(unknown)}")
    return Finding("ok", "prices", f"of {project.prices.date} ({project.prices.origin})")


def _schemas(root: Path) -> Finding:
    folder = root / ".edison" / "schemas"
    stale = [
        kind
        for kind in KINDS
        if not (folder / schema.file_name(kind)).is_file()
        or (folder / schema.file_name(kind)).read_text(encoding="utf-8", errors="replace")
        != schema.text_of(kind)
    ]
    if stale:
        return Finding(
            "warn",
            "schemas",
            f"outdated or missing in .edison/schemas: {', '.join(stale)}; "
            "remove them and run edison init",
        )
    return Finding("ok", "schemas", "up to date")
