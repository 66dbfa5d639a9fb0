"""Recordings: answers of stored runs as files, and replays that take answers from them."""

from __future__ import annotations

import itertools
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.access import own_results, proposal_terms
from edison_ci.access.site import Role, Site
from edison_ci.errors import EdisonError, UsageError
from edison_ci.providers import replay
from edison_ci.store.answers import newest_answers
from edison_ci.store.database import open_reader
from edison_ci.store.integrity import open_foreign

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from edison_ci.config.load import Experiment, Project
    from edison_ci.records import BaselineDoubt

RECORDINGS = "recordings"
"""The folder of a project whose recordings answer a replay in a job."""


class Recording(NamedTuple):
    """Recorded answers that replace the models."""

    provider: replay.ReplayProvider
    doubts: tuple[BaselineDoubt, ...] = ()
    """Reasons why they do not count as evidence."""

    @classmethod
    def open(cls, project: Project, path: Path) -> Recording:
        """Read a recording; raises UsageError or ConfigError if that is not possible."""
        provider = replay.open_recording(path)
        return cls(provider, own_results.recording_doubts(project.root, [path]))


def recorded_answers(project: Project) -> Recording | None:
    """Return all recorded and stored answers, with the reasons to doubt them; None without any."""
    names = [name for name in project.tree.names(RECORDINGS) if name.endswith(".jsonl")]
    files = (replay.read_project_recording(f"{RECORDINGS}/{name}", project.tree) for name in names)
    foreign = [*_unsigned_answers(project)]
    provider = replay.ReplayProvider(itertools.chain(foreign, _own_answers(project), *files))
    if not len(provider):
        return None
    paths = [project.root / RECORDINGS / name for name in names]
    doubts = own_results.recording_doubts(project.root, paths)
    return Recording(provider, (*doubts, *([own_results.STORED] if foreign else [])))


def _own_answers(project: Project) -> Iterator[replay.RecordedAnswer]:
    results = project.root / project.file.results
    if results.exists():
        with closing(open_reader(results)) as connection:
            yield from _stored_answers(connection)


def _unsigned_answers(project: Project) -> Iterator[replay.RecordedAnswer]:
    """Yield the answers of results that were set aside, if they can be read."""
    aside = own_results.unsigned_path(project.root / project.file.results)
    if not proposal_terms.is_proposed(project.root) or not aside.exists():
        return
    try:
        connection = open_foreign(aside, hint="run without it")
    except EdisonError:
        return  # an earlier job left them; this one can do without
    with closing(connection):
        yield from _stored_answers(connection)


def _stored_answers(connection: sqlite3.Connection) -> Iterator[replay.RecordedAnswer]:
    """Yield the newest answer of every request, as in a recording."""
    for request_hash, stored in newest_answers(connection):
        completion = stored.completion
        yield replay.RecordedAnswer(
            request_hash=request_hash,
            answer_no=stored.answer_no,
            text=completion.text,
            tool_calls=completion.tool_calls,
            finish_reason=str(completion.finish_reason),
            tokens_in=completion.tokens_in,
            tokens_out=completion.tokens_out,
            latency_ms=completion.latency_ms,
            served_model=completion.served_model,
            cost_microusd=stored.cost_microusd,
        )


def refuse_recording(path: Path, experiments: Sequence[Experiment]) -> None:
    """Raise UsageError if the answers to these experiments cannot be recorded in one file."""
    replay.refuse_unwritable(path)
    if len(experiments) > 1:
        hint = f"name one: {', '.join(experiment.id for experiment in experiments)}"
        raise UsageError("--record takes one experiment", hint=hint)


def record_answers(project: Project, run_id: str, path: Path) -> int:
    """Write the answers of a run to a recording; return how many there are."""
    with closing(open_reader(project.root / project.file.results)) as reader:
        lines = (answer.line for answer in replay.run_answers(reader, run_id))
        count = replay.write_recording(path, lines)
    Site(project.root, project.file).note_export(f"run {run_id} as a recording", path.name)
    return count


def export_recording(site: Site, path: Path) -> int:
    """Write the newest answer of every request to a recording; return their number."""
    site.require(Role.VIEWER, "cache export", site.file.results)
    if site.file.settings.private:
        raise UsageError(
            "this project is private, so its texts are not exported",
            hint="see settings.private in edison.yaml",
        )
    site.note_export("the newest answers as a recording", path.name)
    with closing(open_reader(site.results)) as connection:
        return replace_recording(path, (answer.line for answer in _stored_answers(connection)))


def replace_recording(path: Path, lines: Iterable[str]) -> int:
    """Write a recording, or replace one; return the number of answers."""
    if path.exists() and not is_recording(path):
        raise UsageError(f"{path} exists and is not a recording", hint="choose another path")
    try:
        return replay.write_recording(path, lines)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror}", hint="choose another path"
        ) from None


def is_recording(path: Path) -> bool:
    """Whether a file is a recording, by its first line."""
    try:
        with path.open("rb") as stream:
            return stream.readline(200).startswith(b'{"edison_recording"')
    except OSError:
        return False
