"""The two sides of a comparison: found by name, and reduced to the cases that both have.

A name is a run (id, `latest` or its experiment); a prompt in one version, as PROMPT@HASH;
`production`, the version that a prompt's front matter names; or a Git ref, for the newest complete
run of that commit.
"""

from __future__ import annotations

import json
import re
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.errors import UsageError
from edison_ci.git.repository import Repository
from edison_ci.plan.baseline import VERSION_LABEL, production_version
from edison_ci.records import Side
from edison_ci.results.metrics import metric_of
from edison_ci.results.samples import SIDES, CellSource, TwoSidedSample, Variant
from edison_ci.results.snapshot import runs_where
from edison_ci.spelling import did_you_mean
from edison_ci.stats.paired import Pairs, match_cases
from edison_ci.stats.scores import units_of
from edison_ci.store.runs import NO_OUTPUTS, NO_TRIAL, find_run, no_run, run_names

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Mapping, Sequence

    from edison_ci.config.load import Project
    from edison_ci.results.samples import Paired
    from edison_ci.stats.paired import Matching
    from edison_ci.store.runs import Run


OWN_EVAL_SUITE = (
    """coalesce(json_extract(snapshot, '$."command line".against.eval_suite'), 'head')"""
)
"""SQL of the side whose eval suite a run was measured with."""


@dataclass(frozen=True, slots=True)
class CellChoice:
    """Cells of a run: one side of it, and perhaps one prompt or one version of it."""

    name: str
    """As it was given on the command line."""
    run: Run
    side: Side = Side.HEAD
    prompt: str | None = None
    version: str | None = None
    """The first digits of the version's hash."""
    models: tuple[str, ...] = ()
    prompts: frozenset[str] | None = None
    """The prompts that count, if not all do."""

    @property
    def words(self) -> str:
        """The name, and the run, side and prompt that it means."""
        about = [f"run {self.run.id}"] if self.name != self.run.id else []
        if self.side != Side.HEAD:
            about.append(f"its {self.side}")
        if self.prompt is not None and self.prompt not in self.name:
            about.append(self.prompt)
        return f"{self.name} ({', '.join(about)})" if about else self.name

    @property
    def commit(self) -> str | None:
        """The commit of its side; None for uncommitted files."""
        return self.run.commit_id if self.side == Side.HEAD else self.run.base_commit

    def as_json(self) -> dict[str, Any]:
        """Return the choice as it appears in `--json`."""
        return {
            "asked": self.name,
            "run_id": self.run.id,
            "experiment": self.run.experiment,
            "side": self.side,
            "prompt": self.prompt,
            "hash": self.version,
            "commit": self.commit,
            "simulated": self.run.simulated,
        }


@dataclass(frozen=True, slots=True)
class ComparisonSample:
    """The cells of two choices that can be compared: A is the base, B the head."""

    cells: TwoSidedSample
    matching: Matching
    alone: tuple[str, ...] = field(default=())
    """Prompts and models that only one of the two has."""


def comparison_sample(
    connection: sqlite3.Connection,
    a: CellChoice,
    b: CellChoice,
    left_out: Collection[str] = frozenset(),
) -> ComparisonSample:
    """Return the cells of two choices, on the cases that both have with the same content."""
    stored = [_stored_variants(connection, choice) for choice in (a, b)]
    prompts, models = (_common(stored, what) for what in Variant._fields)
    named = [
        {Variant(prompts.names[s.prompt], models.names[s.model]): s for s in side if s in common}
        for side, common in zip(stored, _common_variants(stored, prompts, models), strict=True)
    ]
    base, head = (
        CellSource(choice.run.id, choice.side, choice.version or "", variants)
        for choice, variants in zip((a, b), named, strict=True)
    )
    cells = TwoSidedSample(connection, base, head)
    matching = match_cases(*(_contents(cells, side) for side in SIDES))
    if not matching.common:
        raise UsageError(
            f"{a.name} and {b.name} have no case in common",
            hint="a case is the same if its input and expected output are",
        )
    other: set[str] = set(left_out)
    if matching.paired:
        other |= {*matching.added, *matching.removed, *matching.changed}
    cells = replace(cells, left_out=frozenset(other))
    return ComparisonSample(cells, matching, (*prompts.alone, *models.alone))


def _stored_variants(connection: sqlite3.Connection, choice: CellChoice) -> set[Variant]:
    """Return the prompts and models of which a choice has cells."""
    rows = connection.execute(
        "select distinct prompt, model, version from cell where run_id = ? and side = ?",
        (choice.run.id, choice.side),
    ).fetchall()
    variants = {
        Variant(prompt, model)
        for prompt, model, version in rows
        if choice.prompt in (None, prompt)
        and (choice.prompts is None or prompt in choice.prompts)
        and version.startswith(choice.version or "")
        and (not choice.models or model in choice.models)
    }
    if variants:
        return variants
    models = sorted({model for _, model, _ in rows})
    for name in choice.models:
        if name not in models:
            hint = did_you_mean(name, models, label="models")
            raise UsageError(f"run {choice.run.id} has no model {name!r}", hint=hint)
    raise UsageError(f"run {choice.run.id} has no cell of {choice.name}", hint="see: edison status")


class _Common(NamedTuple):
    """The prompts or the models that both sides have."""

    names: Mapping[str, str]
    """Their names in the sample."""
    alone: tuple[str, ...]
    """Those that only one side has."""


def _common(sides: Sequence[set[Variant]], what: str) -> _Common:
    """Return the prompts or models that both sides have; two different ones are compared too."""
    base, head = ({getattr(variant, what) for variant in side} for side in sides)
    if base & head:
        return _Common({name: name for name in base & head}, tuple(sorted(base ^ head)))
    if len(base) > 1 or len(head) > 1:
        raise UsageError(
            f"they have no {what} in common: {', '.join(sorted(base))} and "
            f"{', '.join(sorted(head))}",
            hint="choose one of each, as PROMPT@HASH" if what == "prompt" else "choose --model",
        )
    return _Common(dict.fromkeys(base | head, " and ".join((*base, *head))), ())


def _common_variants(
    sides: Sequence[set[Variant]], prompts: _Common, models: _Common
) -> list[set[Variant]]:
    return [
        {s for s in side if s.prompt in prompts.names and s.model in models.names} for side in sides
    ]


def _contents(cells: TwoSidedSample, side: Side) -> dict[str, str]:
    """Return a hash of input and expected output of each case."""
    contents: dict[str, str] = {}
    for variant in cells.variants(side):
        for case, content in cells.contents(variant, side):
            contents[case] = min(contents.get(case, content), content)
    return contents


def flip_pairs(
    cells: TwoSidedSample, variants: Sequence[Variant], clusters: Mapping[str, str]
) -> tuple[Pairs, list[Paired]]:
    """Return the passes of both sides, of all prompts and models, and of each of them alone.

    Over several of them each case is a cluster: its flips come from one change.
    """
    metric = metric_of(cells, "flips")
    every = [cells.pairs(metric, (variant,)) for variant in variants]
    return joint_pairs(every, clusters), every


def joint_pairs(every: Sequence[Paired], clusters: Mapping[str, str]) -> Pairs:
    """Return the pairs of several prompts and models; each case is a cluster then."""
    cases = [case for paired in every for case in paired.cases]
    groups = units_of(cases, clusters)
    if groups is None and len(every) > 1:
        groups = tuple(cases)
    base = tuple(repeats for paired in every for repeats in paired.base)
    head = tuple(repeats for paired in every for repeats in paired.head)
    return Pairs(base, head, groups)


def runs_at_commit(
    connection: sqlite3.Connection, run: Run, commit: str, *, most: int
) -> list[tuple[Run, Side]]:
    """Return other complete runs of an experiment that have a commit as head or base, newest first.

    Only runs on the eval suite of head: another one is not the suite of that commit.
    """
    rows = connection.execute(
        "select id, iif(commit_id = :commit, 'head', 'base') from run where experiment = :name "
        "and id <> :own and complete = 1 and status = 'COMPLETED' "
        f"and (commit_id = :commit or base_commit = :commit) and {OWN_EVAL_SUITE} = 'head' "
        f"and {NO_TRIAL} order by created_at desc, rowid desc limit :most",
        {"commit": commit, "name": run.experiment, "own": run.id, "most": most},
    ).fetchall()
    return [(find_run(connection, run_id), Side(side)) for run_id, side in rows]


def runs_of_versions(
    connection: sqlite3.Connection, run: Run, versions: Mapping[str, str], *, most: int
) -> list[tuple[Run, Side]]:
    """Return complete runs of an experiment with these versions of prompts, newest first.

    The run itself comes first, if its base has them; it need not be complete.
    """
    rows = connection.execute(
        "select distinct c.run_id, c.side, c.prompt, c.version from cell c join (select id, "
        "created_at, rowid as place from run where experiment = :name and id <> :own and "
        f"complete = 1 and status = 'COMPLETED' and {OWN_EVAL_SUITE} = 'head' and {NO_TRIAL} "
        "order by created_at desc, rowid desc limit :most) r on r.id = c.run_id "
        "order by r.created_at desc, r.place desc, c.side desc",
        {"name": run.experiment, "own": run.id, "most": most},
    ).fetchall()
    own = connection.execute(
        "select distinct run_id, side, prompt, version from cell where run_id = ? "
        "and side = 'base'",
        (run.id,),
    ).fetchall()
    sides: dict[tuple[str, str], dict[str, set[str]]] = {}
    for run_id, side, prompt, version in (*own, *rows):
        sides.setdefault((run_id, side), {}).setdefault(prompt, set()).add(version)
    return [
        (find_run(connection, run_id), Side(side))
        for (run_id, side), versions_by_prompt in sides.items()
        if all(
            len(versions_by_prompt.get(prompt, ())) == 1
            and next(iter(versions_by_prompt[prompt])).startswith(version)
            for prompt, version in versions.items()
        )
    ]


PRODUCTION = "production"
_VERSION = re.compile(r"(?P<prompt>.+)@(?P<hash>[0-9a-f]{4,64})")


@dataclass(frozen=True, slots=True)
class Operands:
    """Finds the cells that names on the command line mean."""

    connection: sqlite3.Connection
    project: Project
    experiment: str | None = None
    """The experiment that is meant where a commit has several."""

    def _fit(self, run_id: str) -> str:
        """Return the condition on `run`: own answers, made here or signed with a trusted key.

        Runs that are named by their id are compared in any case.
        """
        keys = json.dumps(self.project.trust.results.public_keys)
        trusted = f"signed_by in (select value from json_each('{keys}'))"
        elsewhere = f"select run_id from run_origin where not coalesce({trusted}, 0)"
        return f"{NO_OUTPUTS} and {run_id} not in ({elsewhere})"

    def pair(self, a: str, b: str) -> tuple[CellChoice, CellChoice]:
        """Return the cells of A and B; the experiment of one is taken for the other."""
        first, second = self._run(a), self._run(b)
        experiment = self.experiment or next((c.run.experiment for c in (first, second) if c), None)
        experiment = experiment or self._only()
        chosen_b = second or self._other(b, experiment, beside=first)
        return first or self._other(a, experiment, beside=chosen_b), chosen_b

    def one(self, name: str) -> CellChoice:
        """Return the cells of a single name."""
        return self._run(name) or self._other(name, self.experiment or self._only(), beside=None)

    def run_with(self, *prompts: str) -> Run:
        """Return the newest complete run that has cells of all these prompts."""
        for name in prompts:
            if not self._is_prompt(name):
                raise self._no_prompt(name)
        has = "exists (select 1 from cell where run_id = r.id and side = 'head' and prompt = ?)"
        where = " and ".join([has] * len(prompts))
        row = self.connection.execute(
            f"select id from run r where complete = 1 and {self._fit('r.id')} and {where} and "
            "experiment = coalesce(?, experiment) order by created_at desc, rowid desc limit 1",
            (*prompts, self.experiment),
        ).fetchone()
        if row is None:
            raise UsageError(
                f"no complete run has both {' and '.join(prompts)}",
                hint="list both under prompts: of one experiment, then edison run",
            )
        return find_run(self.connection, row[0])

    def _only(self) -> str | None:
        names = [e.id for e in self.project.experiments.values() if not e.file.archived]
        return names[0] if len(names) == 1 else None

    def _run(self, name: str) -> CellChoice | None:
        """Return a run by id, `latest` or experiment."""
        is_stored = self.connection.execute(
            "select exists (select 1 from run where id = ?1 or experiment = ?1)", (name,)
        ).fetchone()[0]
        if name != "latest" and not is_stored:
            return None
        return CellChoice(name, find_run(self.connection, name))

    def _other(self, name: str, experiment: str | None, *, beside: CellChoice | None) -> CellChoice:
        if name == PRODUCTION:
            return self._production(experiment)
        named = _VERSION.fullmatch(name)
        if named is not None and self._is_prompt(named["prompt"]):
            return self._version(name, named["prompt"], named["hash"])
        return self._commit(name, experiment, beside)

    def _is_prompt(self, name: str) -> bool:
        if any(prompt.id == name for prompt in self.project.prompts.values()):
            return True
        row = self.connection.execute(
            "select exists (select 1 from run, json_each(run.labels) label where label.key = ?)",
            (name,),
        ).fetchone()
        return bool(row[0])

    def _no_prompt(self, name: str) -> UsageError:
        hint = did_you_mean(name, [p.id for p in self.project.prompts.values()], label="prompts")
        return UsageError(f"there is no prompt {name!r}", hint=hint)

    def _version(self, name: str, prompt: str, version: str) -> CellChoice:
        row = self.connection.execute(
            "select r.id, c.side from run r join cell c on c.run_id = r.id "
            f"where r.complete = 1 and r.partial = 0 and {self._fit('r.id')} and c.prompt = ? "
            "and substr(c.version, 1, ?) = ? group by r.id, c.side "
            "order by r.created_at desc, r.rowid desc, c.side = 'head' desc limit 1",
            (prompt, len(version), version),
        ).fetchone()
        if row is None:
            raise UsageError(
                f"no complete run has {prompt} in version {version}", hint=self._versions(prompt)
            )
        return CellChoice(name, find_run(self.connection, row[0]), Side(row[1]), prompt, version)

    def _versions(self, prompt: str) -> str:
        rows = self.connection.execute(
            "select distinct substr(c.version, 1, 8) from cell c join run r on r.id = c.run_id "
            "where c.prompt = ? and r.complete = 1 and r.partial = 0 and "
            f"{self._fit('r.id')} limit 10",
            (prompt,),
        )
        versions = ", ".join(version for (version,) in rows)
        return f"there are: {versions}" if versions else "run it first: edison run"

    def _production(self, experiment: str | None) -> CellChoice:
        if experiment is None:
            raise UsageError(
                "production needs the name of an experiment", hint="add --experiment NAME"
            )
        for prompt in self.project.experiment(experiment).prompts:
            if prompt.header.production:
                version = production_version(prompt, self.project.root)
                return self._version(PRODUCTION, prompt.id, version)
        raise UsageError(
            f"no prompt of {experiment} names its version in production",
            hint="write production: HASH into its front matter",
        )

    def _commit(self, name: str, experiment: str | None, beside: CellChoice | None) -> CellChoice:
        repository = Repository.find(self.project.root)
        if repository is None:
            raise no_run(self.connection, name)
        try:
            commit = repository.resolve(name)
        except UsageError as error:
            raise self._unknown(name, error) from None
        if experiment is None:
            names = ", ".join(self.project.experiments)
            raise UsageError(
                f"{name} needs the name of an experiment", hint=f"add --experiment: {names}"
            )
        if beside is not None and beside.side == Side.HEAD and beside.run.base_commit == commit:
            return CellChoice(name, beside.run, Side.BASE)  # measured together, on one eval suite
        run = self._newest(f"commit_id = ? and {OWN_EVAL_SUITE} = 'head'", experiment, commit)
        if run is not None:
            return CellChoice(name, run)
        run = self._newest(f"base_commit = ? and {OWN_EVAL_SUITE} = 'head'", experiment, commit)
        if run is not None:
            return CellChoice(name, run, Side.BASE)
        raise UsageError(
            f"there is no complete run of {experiment} at {name} ({commit[:8]})",
            hint=f"measure both together: edison run {experiment} --against {name}",
        )

    def _unknown(self, name: str, error: UsageError) -> UsageError:
        """Return the error for a name that is neither a run nor a version nor a commit."""
        prompt, sign, version = name.rpartition("@")
        if sign and not prompt.endswith(("^", "~")) and not version.startswith("{"):
            if not self._is_prompt(prompt):
                return self._no_prompt(prompt)
            hint = f"write its hash: edison history {prompt}"
            return UsageError(f"{version!r} is not the hash of a version of {prompt}", hint=hint)
        names = [*run_names(self.connection), *self.project.experiments, PRODUCTION]
        near = did_you_mean(name, names)
        hint = f"for runs see: edison status; or {error.hint}"
        if VERSION_LABEL.fullmatch(name):
            hint = "versions of a prompt: edison diff A B; here they are PROMPT@HASH"
        elif near.startswith("did you mean") or error.hint.startswith("did you mean"):
            hint = near if near.startswith("did you mean") else error.hint
        return UsageError(f"{name!r} is not a run, experiment or commit", hint=hint)

    def _newest(self, where: str, experiment: str, commit: str) -> Run | None:
        where = f"{where} and experiment = ? and complete = 1 and partial = 0 and {self._fit('id')}"
        return next(iter(runs_where(self.connection, where, (commit, experiment))), None)
