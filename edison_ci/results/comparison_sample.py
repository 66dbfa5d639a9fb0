"""Cells of two runs, or of two prompts of one run, set side by side as a base and a head."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.errors import UsageError
from edison_ci.names import did_you_mean
from edison_ci.results.samples import SIDES, CellSource, Subject, TwoSidedSample
from edison_ci.stats.paired import match_cases
from edison_ci.store.runs import NO_TRIAL, find_run

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Mapping, Sequence

    from edison_ci.results.samples import Side
    from edison_ci.stats.paired import Matching
    from edison_ci.store.runs import Run


OWN_MATERIAL = """coalesce(json_extract(snapshot, '$."command line".against.material'), 'head')"""
"""SQL of whose material a run was measured with."""


# As if they were the two sides of one run: they are copied into a temporary table that stands
# before the stored one, one choice as base, the other as head, and everything that reads cells can
# then compare them. The file itself is open for reading only, and stays as it is.
@dataclass(frozen=True, slots=True)
class Choice:
    """Cells of a run: one side of it, and perhaps one prompt or one version of it."""

    told: str
    """As it was asked for."""
    run: Run
    side: Side = "head"
    prompt: str | None = None
    version: str | None = None
    """The first digits of the version's hash."""
    models: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return what was chosen."""
        return {
            "asked": self.told,
            "run_id": self.run.id,
            "experiment": self.run.experiment,
            "side": self.side,
            "prompt": self.prompt,
            "hash": self.version,
            "commit": self.run.commit_id if self.side == "head" else self.run.base_commit,
            "simulated": self.run.simulated,
        }


@dataclass(frozen=True, slots=True)
class ComparisonSample:
    """The cells of two choices that can be compared: what A has is the base, B the head."""

    cells: TwoSidedSample
    matching: Matching
    alone: tuple[str, ...] = field(default=())
    """Prompts and models that only one of the two has."""


def comparison_sample(
    connection: sqlite3.Connection, a: Choice, b: Choice, left_out: Collection[str] = frozenset()
) -> ComparisonSample:
    """Set two choices side by side, on the cases that both have and that are still the same."""
    stored = [_stored_subjects(connection, choice) for choice in (a, b)]
    prompts, models = (_common(stored, what) for what in Subject._fields)
    named = [
        {Subject(prompts.names[s.prompt], models.names[s.model]): s for s in side if s in common}
        for side, common in zip(stored, _shared(stored, prompts, models), strict=True)
    ]
    base, head = (
        CellSource(choice.run.id, choice.side, choice.version or "", subjects)
        for choice, subjects in zip((a, b), named, strict=True)
    )
    cells = TwoSidedSample(connection, base, head)
    matching = match_cases(*(_contents(cells, side) for side in SIDES))
    if not matching.common:
        raise UsageError(
            f"{a.told} and {b.told} have no case in common",
            hint="a case is the same if its input and expected output are",
        )
    other: set[str] = set(left_out)
    if matching.paired:
        other |= {*matching.added, *matching.removed, *matching.changed}
    cells = replace(cells, left_out=frozenset(other))
    return ComparisonSample(cells, matching, (*prompts.alone, *models.alone))


def _stored_subjects(connection: sqlite3.Connection, choice: Choice) -> set[Subject]:
    """Return the prompts and models that a choice has cells of."""
    rows = connection.execute(
        "select distinct prompt, model, version from cell where run_id = ? and side = ?",
        (choice.run.id, choice.side),
    ).fetchall()
    found = {
        Subject(prompt, model)
        for prompt, model, version in rows
        if choice.prompt in (None, prompt)
        and version.startswith(choice.version or "")
        and (not choice.models or model in choice.models)
    }
    if found:
        return found
    models = sorted({model for _, model, _ in rows})
    for name in choice.models:
        if name not in models:
            hint = did_you_mean(name, models, label="models")
            raise UsageError(f"run {choice.run.id} has no model {name!r}", hint=hint)
    raise UsageError(f"run {choice.run.id} has no cell of {choice.told}", hint="see: edison status")


class _Common(NamedTuple):
    """The prompts or the models that stand on both sides."""

    names: Mapping[str, str]
    """What the sample calls each of them."""
    alone: tuple[str, ...]
    """Those that only one side has."""


def _common(sides: Sequence[set[Subject]], what: str) -> _Common:
    """Return the prompts or models that both sides have; two different ones are compared too."""
    base, head = ({getattr(subject, what) for subject in side} for side in sides)
    if base & head:
        return _Common({name: name for name in base & head}, tuple(sorted(base ^ head)))
    if len(base) > 1 or len(head) > 1:
        raise UsageError(
            f"they have no {what} in common: {', '.join(sorted(base))} and "
            f"{', '.join(sorted(head))}",
            hint="choose one of each, as PROMPT@HASH" if what == "prompt" else "choose --model",
        )
    return _Common(dict.fromkeys(base | head, " and ".join((*base, *head))), ())


def _shared(sides: Sequence[set[Subject]], prompts: _Common, models: _Common) -> list[set[Subject]]:
    return [
        {s for s in side if s.prompt in prompts.names and s.model in models.names} for side in sides
    ]


def _contents(cells: TwoSidedSample, side: Side) -> dict[str, str]:
    """Return what each case asks and expects, as a hash."""
    found: dict[str, str] = {}
    for subject in cells.subjects(side):
        for case, content in cells.contents(subject, side):
            found[case] = min(found.get(case, content), content)
    return found


def runs_at_commit(
    connection: sqlite3.Connection, run: Run, commit: str, *, most: int
) -> list[tuple[Run, Side]]:
    """Return other complete runs of an experiment that have a commit as head or base, newest first.

    Only those on their own eval suite: whatever else a run had for its base is another suite.
    """
    rows = connection.execute(
        "select id, iif(commit_id = :commit, 'head', 'base') from run where experiment = :name "
        "and id <> :own and complete = 1 and status = 'COMPLETED' "
        f"and (commit_id = :commit or base_commit = :commit) and {OWN_MATERIAL} = 'head' "
        f"and {NO_TRIAL} order by created_at desc, rowid desc limit :most",
        {"commit": commit, "name": run.experiment, "own": run.id, "most": most},
    ).fetchall()
    return [(find_run(connection, run_id), side) for run_id, side in rows]
