"""Snapshots of runs: what a run was planned with, and whether two runs are comparable.

A comparison whose eval suite differs is measured twice, on the eval suite of head and on that of
the base. Both runs store their snapshot and the files that differ, so the changes can be listed
from stored runs.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from dataclasses import field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.config import screens
from edison_ci.records import BaselineDoubt, Side
from edison_ci.store.runs import (
    IMPORT,
    IMPORTED_ANSWERS,
    NO_OUTPUTS,
    NO_STRANGER,
    NO_TRIAL,
    PRODUCTION,
    find_run,
)

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from edison_ci.store.runs import Run


# Scores are comparable only if the same checks, rubric, judges, graders and screens gave them. Here
# those entries of two snapshots are compared that influence grades. Prompts and generating models
# may differ: they are what is compared.
_GRADING = ("checks", "judges", "safety")
_OTHER = ("command line", "quarantine.yaml", "judge_approvals.yaml", "the price of ")
"""Entries of a snapshot on which grades do not depend."""


def differing_eval_suite(a: Run, b: Run) -> list[str]:
    """Return the entries of two snapshots whose difference makes their grades incomparable."""
    if a.id == b.id or a.snapshot == b.snapshot:
        return []
    old, new = _grading_content(a), _grading_content(b)
    return [place for place in {**old, **new} if old.get(place) != new.get(place)]


def _grading_content(run: Run) -> dict[str, Any]:
    try:
        kept = json.loads(run.snapshot)
    except ValueError:
        return {"snapshot": run.id}
    place, written = _written_experiment(kept, run.experiment)
    rubric = written.get("rubric") or {}
    scored = dict(kept.get(rubric.get("path")) or {})
    # Labels decide whether a judge is approved; its grades do not depend on them.
    labels = (scored.pop("calibration", None) or {}).get("labels")
    measured = {place, labels, rubric.get("path"), *written.get("prompts", ())}
    measured -= {grader["prompt"] for grader in written.get("judges", {}).get("graders", ())}
    others = {
        name: value
        for name, value in kept.items()
        if name not in measured
        and not name.startswith((*_OTHER, "base: "))
        and not _is_generating_model(value)
    }
    graded: dict[str, Any] = {key: written.get(key) for key in _GRADING}
    graded["rubric"] = [rubric.get("weight"), scored]
    if rubric or written.get("judges", {}).get("pairwise"):
        graded["objective"] = written.get("objective")  # these judges see it
    return {**graded, **others}


def _written_experiment(kept: dict[str, Any], name: str) -> tuple[str, dict[str, Any]]:
    for place, value in kept.items():
        if place.startswith("base: "):
            continue  # the base has an experiment of the same name
        if isinstance(value, dict) and value.get("experiment") == name:
            return place, value
    return "", {}


def experiment_in(kept: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the file of an experiment as it was when a run was planned."""
    return _written_experiment(kept, name)[1]


def _is_generating_model(value: Any) -> bool:
    """Whether an entry is a model that only generates: it is stored without parameters."""
    return (
        isinstance(value, list)
        and len(value) == 2
        and isinstance(value[0], dict)
        and value[1] is None
    )


MEASURED = "complete = 1 and status = 'COMPLETED'"
"""SQL of a run that was measured to its end."""
MOST_RUNS = 200
"""Number of newest complete runs that are searched for further versions and models."""


def complete_runs(
    connection: sqlite3.Connection,
    experiment: str,
    most: int,
    *,
    trials: bool = False,
    strangers: bool = True,
) -> list[Run]:
    """Return the complete runs of an experiment, newest first; trials only with `trials`.

    Runs of imported outputs are left out, and without `strangers` runs that came from elsewhere
    without a trusted signature.
    """
    where = f"{MEASURED} and {NO_OUTPUTS}"
    where += "" if trials else f" and {NO_TRIAL}"
    where += "" if strangers else f" and {NO_STRANGER}"
    return runs_where(connection, f"experiment = ? and {where}", (experiment,), most=most)


def newest_ids(
    connection: sqlite3.Connection,
    where: str,
    values: Sequence[object] = (),
    *,
    most: int = 1,
    first: str = "",
) -> list[str]:
    """Return the runs that fulfil a condition, newest first; `first` is what to sort by before."""
    rows = connection.execute(
        f"select id from run where {where} order by {first} created_at desc, rowid desc limit ?",
        (*values, most),
    )
    return [run_id for (run_id,) in rows.fetchall()]


def runs_where(
    connection: sqlite3.Connection, where: str, values: Sequence[object] = (), *, most: int = 1
) -> list[Run]:
    """Return the runs that fulfil a condition, newest first."""
    return [
        find_run(connection, run_id) for run_id in newest_ids(connection, where, values, most=most)
    ]


def production_runs(connection: sqlite3.Connection, experiment: str, most: int) -> list[Run]:
    """Return the complete runs that graded samples of production, newest first."""
    where = f"experiment = ? and {MEASURED} and trigger = '{PRODUCTION}'"
    return runs_where(connection, where, (experiment,), most=most)


def measured_experiments(connection: sqlite3.Connection) -> list[str]:
    """Return the experiments that have a complete run, by name."""
    rows = connection.execute(
        f"select distinct experiment from run where {MEASURED} and {NO_OUTPUTS} order by 1"
    )
    return [name for (name,) in rows]


_GRADING_KEYS = ("objective", "checks", "rubric", "judges", "safety")
_NEVER = ("command line", "quarantine.yaml", "judge_approvals.yaml")
_NOT_AT_THE_START = ("the price of ", "base: ")


def grading_hash(run: Run) -> str:
    """Return a hash of everything that grades the answers of a run."""
    text = json.dumps(_grading(snapshot_of(run)), sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def has_pairwise_judge(run: Run) -> bool:
    """Whether the experiment of a run had a pairwise judge, as far as is known."""
    judges = _experiment(snapshot_of(run)).get("judges")
    return not isinstance(judges, dict) or judges.get("pairwise") is not None


def _experiment(kept: dict[str, Any]) -> dict[str, Any]:
    own = (part for place, part in kept.items() if not place.startswith(_NOT_AT_THE_START))
    return next((part for part in own if _is_experiment(part)), {})


def _grading(kept: dict[str, Any]) -> dict[str, Any]:
    experiment = _experiment(kept)
    used = {key: experiment.get(key) for key in _GRADING_KEYS}
    texts = set(_texts(used))
    grading: dict[str, Any] = {"experiment": used}
    for place, part in kept.items():
        if place in _NEVER or place.startswith(_NOT_AT_THE_START) or part is experiment:
            continue
        if place in experiment.get("prompts", ()):
            continue
        _, sign, model = place.rpartition(": ")
        if sign and isinstance(part, list):  # a model of the registry, by name
            if model in texts:
                grading[place] = part
        elif isinstance(part, str):  # the digest of a file
            if place.startswith("judges/") or any(place in text for text in texts):
                grading[place] = part
        elif isinstance(part, dict) and "criteria" in part:  # a rubric, its approval left out
            grading[place] = {key: value for key, value in part.items() if key != "calibration"}
        else:
            grading[place] = part
    return grading


def _is_experiment(part: object) -> bool:
    return isinstance(part, dict) and {"objective", "checks", "judges", "prompts"} <= part.keys()


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [text for item in value for text in _texts(item)] if isinstance(value, list) else []


UNDECIDED = "Its gates do not decide; merge all shards: `edison runs merge SHARD.db...`"
"""Sentence on the gates of a shard."""

_ORIGIN = {
    **dict.fromkeys(("file", "sha256"), str),
    **dict.fromkeys(("answers", "without_cost", "without_latency"), int),
    **dict.fromkeys(("models", "prompts"), list),
}
"""What is stored on the origin of imported answers."""


def snapshot_of(run: Run) -> dict[str, Any]:
    """Return the snapshot of a run: the content of its files when it was planned."""
    try:
        snapshot = json.loads(run.snapshot)
    except ValueError:
        return {}
    return snapshot if isinstance(snapshot, dict) else {}


def command_line_of(run: Run) -> dict[str, Any]:
    """Return what a run was started with: its options, base and origin."""
    return _dict(snapshot_of(run).get("command line"))


class RunSource(NamedTuple):
    """The files that a run was made with, as a line of a list of runs names them."""

    commit: str | None
    """What was checked out."""
    branch: str | None
    author: str | None
    """Of the commit."""
    changed: bool
    """Whether files of the run differed from the commit."""

    @property
    def words(self) -> str:
        """Commit, branch and author, as far as they are known."""
        if self.commit is None:
            return ""
        parts = [self.commit[:8], *(("changed",) if self.changed else ())]
        parts += [f"on {self.branch}"] if self.branch else []
        return " ".join(parts) + (f", {self.author}" if self.author else "")


def source_of(run: Run) -> RunSource:
    """Return the commit, branch and author of a run; earlier runs know the commit only."""
    stored = _dict(command_line_of(run).get("git"))
    commit, branch, author = (
        str(stored[key]) if stored.get(key) else None for key in ("commit", "branch", "author")
    )
    changed = commit is not None and run.commit_id is None and not run.grades_imports
    return RunSource(run.commit_id or commit, branch, author, changed)


def prompt_labels(run: Run) -> str:
    """Return the versions of the prompts of a run, as v3 or NAME v3 of several."""
    labels = run.labels
    if len(labels) == 1:
        return next(iter(labels.values()))
    return ", ".join(f"{prompt} {label}" for prompt, label in labels.items())


def is_redacted(run: Run) -> bool:
    """Whether personal data was removed before answers were stored and graded."""
    kept = snapshot_of(run)
    settings = kept.get("edison.yaml: settings")
    if isinstance(settings, dict) and settings.get("redact_pii_before_storage") is True:
        return True
    pii = _dict(_dict(_experiment(kept).get("safety")).get("pii"))
    return "redact" in (pii.get("action"), *_dict(pii.get("kinds")).values())


def screens_of(run: Run) -> tuple[str, ...]:
    """Return the safety screens that a run had on, in the order of the file format."""
    safety = _dict(_experiment(snapshot_of(run)).get("safety"))
    inputs = _dict(safety.get("inputs"))
    settings = safety | {f"input_{kind}": value for kind, value in inputs.items()}
    return tuple(kind for kind in screens.SAFETY_KINDS if _screens(settings.get(kind)))


def _screens(setting: object) -> bool:
    """Whether a screen looks for anything: it is an action, or has one."""
    actions = (setting, _dict(setting).get("action"), *_dict(_dict(setting).get("kinds")).values())
    return any(isinstance(action, str) and action != "off" for action in actions)


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def base_reference_of(run: Run) -> dict[str, Any]:
    """Return the stored reference to the base of a run; empty without one."""
    against = command_line_of(run).get("against")
    return against if isinstance(against, dict) else {}


def eval_suite_of(run: Run) -> str:
    """Return the side whose eval suite a run was measured on: `head` or `base`."""
    return str(base_reference_of(run).get("eval_suite", Side.HEAD))


def push_of(run: Run) -> int | None:
    """Return which push of its pull request a run measured; 1 outside of one, None if unknown."""
    push = command_line_of(run).get("push", 1)
    return int(push) if push is not None else None


def outside_models_of(run: Run) -> frozenset[str]:
    """Return the models of a run that its experiment does not list; gates do not count them."""
    return frozenset(map(str, command_line_of(run).get("outside", ())))


def doubts_of(run: Run) -> tuple[BaselineDoubt, ...]:
    """Return the reasons for which a run was inconclusive at best."""
    kept = command_line_of(run)
    return (*doubts_in(kept.get("against") or {}), *doubts_in(kept))


def doubts_in(kept: Mapping[str, Any]) -> tuple[BaselineDoubt, ...]:
    """Return the doubts in a stored base reference or command line."""
    return tuple(BaselineDoubt(*map(str, doubt)) for doubt in kept.get("doubts", ()))


def outputs_of(run: Run) -> dict[str, Any] | None:
    """Return where the imported answers of a run come from; None if a model gave its answers.

    That is file, sha256, answers, without_cost, without_latency, and the models and prompts.
    """
    kept = command_line_of(run).get("outputs")
    if not isinstance(kept, dict):
        return None
    # A bundle may have any snapshot.
    fits = all(isinstance(kept.get(name), kind) for name, kind in _ORIGIN.items())
    names = [*kept["models"], *kept["prompts"]] if fits else [None]
    return kept if all(isinstance(name, str) for name in names) else None


def objective_of(run: Run) -> str:
    """Return the objective of the experiment when a run was planned."""
    return str(experiment_in(snapshot_of(run), run.experiment).get("objective") or "")


# A comparison with a changed eval suite has two runs, and a pull request may touch several
# experiments.
_MOST_EARLIER = 500
"""Number of earlier runs that are searched for others of the same change."""


def companion_of(connection: sqlite3.Connection, run: Run) -> Run | None:
    """Return the run on the base's eval suite that was made for the same comparison, if any."""
    if run.base_commit is None or eval_suite_of(run) == Side.BASE:
        return None
    for other in _before(connection, run):
        if other.experiment != run.experiment:
            continue
        same = other.base_commit == run.base_commit and eval_suite_of(other) == Side.BASE
        return other if same else None
    return None


def runs_of_change(connection: sqlite3.Connection, run: Run) -> list[Run]:
    """Return the newest run of each experiment on the same commit and base, by name.

    A run on uncommitted files stands alone: its change is not known.
    """
    runs = {run.experiment: run}
    if run.commit_id is not None:
        for other in _before(connection, run):
            alike = (other.commit_id, other.base_commit) == (run.commit_id, run.base_commit)
            if alike and eval_suite_of(other) == Side.HEAD:
                runs.setdefault(other.experiment, other)
    return [runs[name] for name in sorted(runs)]


def _before(connection: sqlite3.Connection, run: Run) -> list[Run]:
    """Return the runs that were started before this one, newest first."""
    where = "(created_at, rowid) < (select created_at, rowid from run where id = ?)"
    return runs_where(connection, where, (run.id,), most=_MOST_EARLIER)


class SuiteChange(NamedTuple):
    """One difference between the eval suites of base and head."""

    place: str
    before: str
    after: str


_VARIANT_KEYS = frozenset({"prompts", "models"})
"""Keys of an experiment that are not part of its eval suite."""
_NOTHING = "-"
_LONGEST = 60
_DEEPEST = 6
_DIGEST = re.compile(r"[0-9a-f]{64}")


def replaced_names(run: Run) -> tuple[str, ...]:
    """Return the prompts and models that are compared with a predecessor of another name."""
    return tuple(map(str, base_reference_of(run).get("replaced", ())))


def form_notes(run: Run) -> tuple[str, ...]:
    """Return which forms of answers were found in the texts of prompts, in sentences."""
    return tuple(map(str, command_line_of(run).get("forms", ())))


def suite_changes(
    connection: sqlite3.Connection, run: Run, companion: Run | None
) -> tuple[SuiteChange, ...]:
    """Return the changes of a run's eval suite since the base, those of cases first.

    `companion` is the run on the base's eval suite; without it only the names of files are known.
    """
    changes: list[SuiteChange] = []
    if companion is not None:
        old, new = _eval_suite(companion), _eval_suite(run)
        changes += _cases(connection, companion, run)
        for place in sorted({*old, *new}):
            changes += _differing(place, old.get(place), new.get(place))
    listed = [change.place for change in changes]
    for place in map(str, base_reference_of(run).get("changed", ())):
        if not any(listed_place.startswith(place) for listed_place in listed):
            changes.append(SuiteChange(place, "as it was", "edited"))
    return tuple(changes)


def _eval_suite(run: Run) -> dict[str, Any]:
    suite: dict[str, Any] = {}
    for place, value in snapshot_of(run).items():
        if place == "command line" or place.startswith("base: ") or _is_measured(value):
            continue
        if isinstance(value, dict) and value.get("experiment") == run.experiment:
            value = {key: item for key, item in value.items() if key not in _VARIANT_KEYS}
        suite[place] = value
    return suite


def _is_measured(value: Any) -> bool:
    """Whether an entry is a prompt or a generating model, and so not part of the eval suite."""
    if _is_generating_model(value):
        return True
    version = value[0] if isinstance(value, list) and len(value) == 2 else None
    digest = isinstance(version, str) and _DIGEST.fullmatch(version) is not None
    return digest and isinstance(value[1], str)


def _differing(
    place: str, old: Any, new: Any, key: str = "", depth: int = 0
) -> Iterator[SuiteChange]:
    if old == new:
        return
    deeper = depth < _DEEPEST and not _is_margin(old) and not _is_margin(new)
    if deeper and isinstance(old, dict) and isinstance(new, dict):
        for name in sorted({*old, *new}):
            below = f"{key}.{name}" if key else str(name)
            yield from _differing(place, old.get(name), new.get(name), below, depth + 1)
    elif deeper and isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from _differing(place, one, other, f"{key}[{index}]", depth + 1)
    else:
        where = f"{place}: {key}" if key else place
        yield SuiteChange(where, _short(old), _short(new))


def _is_margin(value: Any) -> bool:
    return isinstance(value, dict) and {"relative", "value"} <= value.keys()


def _short(value: Any) -> str:
    if value is None:
        return _NOTHING
    if _is_margin(value):
        return f"{100 * float(value['value']):g}{'%' if value['relative'] else 'pp'}"
    if isinstance(value, str):
        text = value[:8] if _DIGEST.fullmatch(value) else value
    elif isinstance(value, list) and any(isinstance(item, list | dict) for item in value):
        return f"{len(value):,} entries" if len(value) != 1 else "1 entry"
    else:
        text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _cases(connection: sqlite3.Connection, before: Run, after: Run) -> Iterator[SuiteChange]:
    counts = connection.execute(
        "with old as (select case_id, max(coalesce(case_hash, '')) as content from cell "
        "where run_id = :old and side = 'head' group by case_id), "
        "new as (select case_id, max(coalesce(case_hash, '')) as content from cell "
        "where run_id = :new and side = 'head' group by case_id) "
        "select (select count(*) from old), (select count(*) from new), "
        "(select count(*) from old where case_id not in (select case_id from new)), "
        "(select count(*) from new where case_id not in (select case_id from old)), "
        "(select count(*) from old join new using (case_id) where old.content <> new.content)",
        {"old": before.id, "new": after.id},
    ).fetchone()
    was, now, removed, added, edited = counts
    if removed or added or edited:
        words = [f"{n:,} {word}" for n, word in ((removed, "removed"), (added, "added"),
                                                (edited, "edited")) if n]  # fmt: skip
        yield SuiteChange("cases", f"{was:,}", f"{now:,} ({', '.join(words)})")


@dataclass(frozen=True, slots=True)
class Files:
    """Files of the experiment, as paths in the project."""

    experiment: str = ""
    models: str = ""
    prompts: Mapping[str, str] = field(default_factory=dict)
    """Paths by the ids of prompts."""


def files_of(run: Run) -> Files:
    """Return the files of the experiment of a run."""
    snapshot = snapshot_of(run)
    place, written = _written_experiment(snapshot, run.experiment)
    if not place:
        return Files()
    paths = [str(path) for path in written.get("prompts", ())]
    models = (
        name.partition(": ")[0]
        for name, value in snapshot.items()
        if not name.startswith("base: ") and _is_model(name, value)
    )
    return Files(place, next(models, ""), {PurePosixPath(path).stem: path for path in paths})


def _is_model(place: str, value: Any) -> bool:
    return ": " in place and isinstance(value, list) and bool(value) and isinstance(value[0], dict)


_ELSEWHERE = frozenset({IMPORT, *IMPORTED_ANSWERS, "replay", "refine"})
"""Triggers of runs that `edison run` on the files of their commit does not repeat."""
_SHORT = 12


def run_commands(runs: Iterable[Run]) -> tuple[str, ...]:
    """Return the commands that repeat runs; runs with the same options are one command."""
    names_by_options: dict[tuple[str, ...], dict[str, None]] = {}
    for run in runs:
        if run.trigger not in _ELSEWHERE and not command_line_of(run).get("regrade"):
            names_by_options.setdefault(tuple(_options(run)), {})[run.experiment] = None
    return tuple(
        shlex.join(["edison", "run", *names, *options])
        for options, names in names_by_options.items()
    )


def _options(run: Run) -> Iterator[str]:
    if run.base_commit is not None:
        yield from ("--against", run.base_commit[:_SHORT])
    chosen = command_line_of(run).get("selection") or {}
    for option, key in (("--model", "models"), ("--case", "cases"), ("--tag", "tags")):
        for value in chosen.get(key) or ():
            yield from (option, str(value))
    for option in ("limit", "repeats", "shard"):
        if chosen.get(option) is not None:
            yield from (f"--{option}", str(chosen[option]))
