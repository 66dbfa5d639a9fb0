"""Results and answers that a job for a proposal trusts: its own, the base's, and signed ones.

A results file from a cache or an artifact may be forged. In a job for a pull request, a merge queue
or a commit that was named by hand, such a file is set aside before it is read, unless it is signed
with a key in the `trust.yaml` of the base. A file under RUNNER_TEMP, which the runner empties for
each job, lists the results that the job made. Elsewhere all results are trusted.

Signatures are Ed25519, by the private key of the project, over the SHA-256 of the bytes of the
file; they are stored beside it, in `FILE.sig`.

Recorded and scripted answers count in such a job only if the bytes of their file are those of the
base commit. Others are shown, but the run is inconclusive at best.
"""

from __future__ import annotations

import hashlib
import json
import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.access import events
from edison_ci.access.proposal_terms import base_trust, is_proposed
from edison_ci.config.project_files import ProjectFiles
from edison_ci.documents import signatures
from edison_ci.documents.files import WorkingTree
from edison_ci.errors import ConfigError, UsageError
from edison_ci.git.repository import Repository
from edison_ci.providers import replay
from edison_ci.records import BaselineDoubt
from edison_ci.store.database import open_database

if TYPE_CHECKING:
    from collections.abc import Iterable

    from edison_ci.config.load import Experiment, Project

_ABOUT = b"edison-ci results 1\n"
"""Prefix of the digest, so that signatures of other things are not valid."""
_KIND = "ed25519 "
_LONGEST = 200
_LOGS = ("-wal", "-journal")


def signature_path(path: Path) -> Path:
    """Return the path of the signature of a file."""
    return path.with_name(f"{path.name}.sig")


def sign(path: Path, private: str) -> str:
    """Sign a file and write the signature beside it; return the public key."""
    signer = signatures.Signer(private)
    _refuse_unfinished(path)
    signed = signer.sign(_ABOUT, _digest(path))
    signature_path(path).write_text(f"{_KIND}{signed.signature}\n", encoding="ascii")
    return signed.public


def is_signed(path: Path, keys: Iterable[str]) -> bool:
    """Whether the signature beside a file is valid for one of these public keys."""
    public_keys, signature = tuple(keys), _signature(path)
    if not public_keys or signature is None or any(map(_has_content, _logs(path))):
        return False
    return signatures.signer_of(_ABOUT, _digest(path), signature, public_keys) is not None


def _signature(path: Path) -> str | None:
    """Return the signature beside a file; None if it is missing or malformed."""
    try:
        with signature_path(path).open("rb") as stream:
            text = stream.read(_LONGEST).decode("ascii")
    except (OSError, UnicodeDecodeError):
        return None
    return text.removeprefix(_KIND).removesuffix("\n") if text.startswith(_KIND) else None


def _refuse_unfinished(path: Path) -> None:
    """Raise for a file with a log beside it: its bytes are not complete."""
    if not path.is_file():
        raise UsageError(f"{path} does not exist", hint="create a copy: edison admin db backup")
    if any(map(_has_content, _logs(path))):
        raise UsageError(
            f"{path} is in use: there is a log beside it",
            hint="sign a copy: edison admin db backup",
        )


def _logs(path: Path) -> list[Path]:
    return [path.with_name(path.name + suffix) for suffix in _LOGS]


def _has_content(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _digest(path: Path) -> bytes:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").digest()


_NOTE = "edison-own-results.json"
_USUAL = ".edison/results.db"
_SUFFIXES = ("", "-wal", "-shm", "-journal", ".sig")


def set_aside_untrusted(root: Path, results: Path | None = None) -> Path | None:
    """Set results aside that this job did not make and that are not signed.

    Returns their new path; None if nothing was set aside.
    """
    if not is_proposed(root):
        return None
    path = results if results is not None else root / _results_of(root)
    if not os.path.lexists(path) or _is_claimed(path):
        return None
    if is_trusted(root, path):
        claim_file(path)
        return None
    aside = unsigned_path(path)
    for suffix in _SUFFIXES:
        old = path.with_name(path.name + suffix)
        if os.path.lexists(old):
            old.rename(aside.with_name(aside.name + suffix))
    return aside


def is_trusted(root: Path, path: Path) -> bool:
    """Whether a results file has a valid signature by a key that the base lists."""
    try:
        keys = base_trust(root).results.public_keys
    except (UsageError, ConfigError):
        return False  # the trust of the base is unknown
    return not path.is_symlink() and is_signed(path, keys)


def claim_new_results(project: Project) -> None:
    """Create the results file as one of this job, in a job for a proposal."""
    path = project.root / project.file.results
    if is_proposed(project.root) and not os.path.lexists(path):
        open_database(path).close()
        claim_file(path)


def adopt(path: Path) -> bool:
    """Restore results that were set aside, when the workflow states that its own run made them."""
    aside = unsigned_path(path)
    if not aside.exists() or os.path.lexists(path):
        return False
    for suffix in _SUFFIXES:
        old = aside.with_name(aside.name + suffix)
        if old.exists():
            old.rename(path.with_name(path.name + suffix))
    claim_file(path)
    return True


def unsigned_path(path: Path) -> Path:
    """Return the path for results that are not trusted."""
    return path.with_name(f"{path.stem}.unsigned{path.suffix}")


def claim_file(path: Path) -> None:
    """Record that a results file belongs to this job; does nothing without RUNNER_TEMP."""
    place = _place()
    if place is not None:
        signature_path(path).unlink(missing_ok=True)  # no longer valid: the file will change
        kept = [claim for claim in _claims() if claim != _file_id(path)]
        place.write_text(json.dumps([*kept, _file_id(path)]), encoding="utf-8")


def _is_claimed(path: Path) -> bool:
    return not path.is_symlink() and path.exists() and _file_id(path) in _claims()


def _file_id(path: Path) -> list[object]:
    stat = path.stat()
    return [str(path.resolve()), stat.st_dev, stat.st_ino]


def _claims() -> list[list[object]]:
    place = _place()
    try:
        claims = json.loads(place.read_text(encoding="utf-8")) if place is not None else []
    except (OSError, ValueError):
        return []
    return claims if isinstance(claims, list) else []


def _place() -> Path | None:
    folder = os.environ.get("RUNNER_TEMP")
    return Path(folder) / _NOTE if folder and Path(folder).is_dir() else None


def _results_of(root: Path) -> str:
    file = ProjectFiles(WorkingTree(root)).project()
    return _USUAL if file is None else file.results


class Standing(StrEnum):
    """How far the results of an earlier job count in this one."""

    EVIDENCE = "evidence"
    RECORDING = "recording"
    """A replay may read their answers, but what it finds is inconclusive at best."""
    REFUSED = "refused"


def standing_of(project: Project, results: Path) -> Standing:
    """Return how far the results of an earlier job count.

    In a job for a proposal, and wherever public keys are listed, they must be signed.
    """
    if is_proposed(project.root):
        trusted = is_trusted(project.root, results)
        return Standing.EVIDENCE if trusted else Standing.RECORDING
    keys = project.trust.results.public_keys
    return Standing.EVIDENCE if not keys or is_signed(results, keys) else Standing.REFUSED


STORED = BaselineDoubt(
    "provenance",
    "Answers come from results of another job, which prove nothing without a signature.",
)


class Proposal(NamedTuple):
    """A proposal, and its base commit."""

    repository: Repository
    base: str | None
    """None if it is not known."""

    @classmethod
    def find(cls, root: Path) -> Proposal | None:
        """Return the proposal of this job; None if it works on none."""
        repository = Repository.find(root)
        if repository is None or not is_proposed(root):
            return None
        return cls(repository, events.find_base(events.read_event(os.environ), repository).commit)

    def has(self, path: Path, data: bytes) -> bool:
        """Whether the base has a file with exactly these bytes at this path."""
        top, real = self.repository.root.resolve(), path.resolve()
        if self.base is None or not real.is_relative_to(top):
            return False
        place = real.relative_to(top).as_posix()
        try:
            return self.repository.read(self.base, place, max_bytes=replay.MAX_BYTES) == data
        except UsageError:
            return False


def recording_doubts(root: Path, paths: list[Path]) -> tuple[BaselineDoubt, ...]:
    """Return the doubts about answers that are taken from these files."""
    proposal = Proposal.find(root) if paths else None
    if proposal is None:
        return ()
    foreign = [path for path in paths if not proposal.has(path, path.read_bytes())]
    return tuple(
        BaselineDoubt(
            "provenance",
            f"The base does not have {_name(root, path)} so, and answers were taken from it.",
        )
        for path in foreign
    )


def model_doubts(project: Project, experiment: Experiment) -> tuple[BaselineDoubt, ...]:
    """Return the doubts about models of an experiment that answer from files."""
    files = [path for _, model, _ in experiment.models for path in (model.store, model.script)]
    return recording_doubts(project.root, [project.root / path for path in files if path])


def _name(root: Path, path: Path) -> str:
    real = path.resolve()
    inside = real.is_relative_to(root.resolve())
    return real.relative_to(root.resolve()).as_posix() if inside else path.name
