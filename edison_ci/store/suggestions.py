"""Suggested changes of prompts, with the status and evidence of each.

A suggestion is known by the hash of what it changes and how, so the same one is never kept twice.
Its status only goes where `MOVES` lets it. Evidence is JSON with the keys

    train, holdout    null, or {n, before, after, difference, decision, sentence,
                      newly_failing, fixed, lower, higher}
                      before and after: {estimate, low, high, n, method}; difference: those and p;
                      decision: better, worse, same, unclear; the last four: ids of cases
    verified          whether the holdout has enough cases to say anything
    proven            whether it may be proposed without force
    sentence          all of it in words
    criteria          [{name, kind, before, after}], scores 0-1 on the training cases
    cost_microusd     {before, after} of an answer, mean; null if unknown
    growth            {chars, percent, lines_added, lines_removed}
    examples          ids of the cells with the failing answers that the refiner was shown
    search            the search that found it: {id, generations, stopped_by, ...}

of which any may be missing.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import field, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.errors import DecidedAlready, StoreError, UsageError
from edison_ci.records import OPEN_STATUSES, Move, SuggestionStatus, canonical_json
from edison_ci.store.database import marks

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping, Sequence


# It is JSON in the results, which may come from an older program or from a hand that should not
# have been there. Readers get every key they rely on, of the kind they rely on; what is of another
# kind counts as missing. Keys that are not known here stay as they are.
MOST_ROWS = 1_000
SEARCH_COUNTS = ("generations", "tried", "measured", "refused", "wider", "earlier_comparisons")
"""What is counted of a search that found a suggestion."""
_DECISIONS = ("better", "worse", "same", "unclear")
_LEVEL = ("estimate", "low", "high")


def sound_evidence(value: Any) -> dict[str, Any]:
    """Return evidence that can be shown without looking twice."""
    if not isinstance(value, dict):
        return {}
    texts = ("sentence", "simulation")
    evidence = {
        key: part for key, part in value.items() if key not in texts or isinstance(part, str)
    }
    for key in ("train", "holdout"):
        if key in evidence:
            evidence[key] = _measurements(evidence[key])
    if "criteria" in evidence:
        rows = evidence["criteria"] if isinstance(evidence["criteria"], list) else []
        evidence["criteria"] = [
            _criterion(row) for row in rows[:MOST_ROWS] if isinstance(row, dict)
        ]
    if "growth" in evidence:
        evidence["growth"] = _growth(evidence["growth"])
    if "cost_microusd" in evidence:
        evidence["cost_microusd"] = _numbers(evidence["cost_microusd"], ("before", "after"))
    if "examples" in evidence:
        evidence["examples"] = _names(evidence["examples"])
    if "search" in evidence:
        evidence["search"] = _search(evidence["search"])
    return evidence


def _measurements(value: Any) -> dict[str, Any] | None:
    if not isinstance(value, dict) or not _is_count(value.get("n")):
        return None
    decision = value.get("decision")
    return {
        **value,
        "before": _level(value.get("before")),
        "after": _level(value.get("after")),
        "difference": {**_part(value, "difference"), **_change(_part(value, "difference"))},
        "decision": decision if decision in _DECISIONS else "unclear",
        **{str(move): _names(value.get(move)) for move in Move},
    }


def _part(value: Mapping[str, Any], key: str) -> dict[str, Any]:
    part = value.get(key)
    return part if isinstance(part, dict) else {}


def _level(value: Any) -> dict[str, Any] | None:
    """Return a score with its interval; one without a score is none."""
    if not isinstance(value, dict) or _number(value.get("estimate")) is None:
        return None
    return {**value, **_bounded(value)}


def _change(value: Mapping[str, Any]) -> dict[str, float | None]:
    return {**_bounded(value), "p": _number(value.get("p"))}


def _bounded(value: Mapping[str, Any]) -> dict[str, float | None]:
    estimate, low, high = (_number(value.get(key)) for key in _LEVEL)
    if estimate is None or low is None or high is None:
        low = high = None
    return {"estimate": estimate, "low": low, "high": high}


def _criterion(row: Mapping[str, Any]) -> dict[str, Any]:
    scores = _numbers(row, ("before", "after"))
    return {**row, "name": str(row.get("name", "?")), **scores}


def _growth(value: Any) -> dict[str, Any] | None:
    growth = value if isinstance(value, dict) else {}
    chars, percent = _number(growth.get("chars")), _number(growth.get("percent"))
    if chars is None:
        return None
    return {**growth, "chars": int(chars), "percent": percent or 0.0}


def _search(value: Any) -> dict[str, Any] | None:
    """Return the facts of a search; None without its counts."""
    search = value if isinstance(value, dict) else {}
    if not all(_is_count(search.get(key)) for key in SEARCH_COUNTS):
        return None
    return {**search, **{key: int(search[key]) for key in SEARCH_COUNTS}}


def _numbers(value: Any, keys: tuple[str, ...]) -> dict[str, float | None]:
    numbers = value if isinstance(value, dict) else {}
    return {key: _number(numbers.get(key)) for key in keys}


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) < 1e15 and math.isfinite(value) else None


def _is_count(value: Any) -> bool:
    return _number(value) is not None and value >= 0 and float(value).is_integer()


def _names(value: Any) -> list[str]:
    return [str(name) for name in value[:MOST_ROWS]] if isinstance(value, list) else []


MAX_TEXT_CHARS = 200_000
"""Longer diffs, notes and reasons are cut: they come from models, and were refused anyway."""
MIN_ID_CHARS = 4


class MadeBy(StrEnum):
    """The command that made a suggestion, which decides how far it may go."""

    REFINE = "refine"
    """One reply of a refiner: a small change."""
    OPTIMIZE = "optimize"
    """A search: several small changes, one after the other."""


MOVES: dict[SuggestionStatus, frozenset[SuggestionStatus]] = {
    SuggestionStatus.REFUSED: frozenset(),
    SuggestionStatus.TRIED: frozenset(
        {SuggestionStatus.PROPOSED, SuggestionStatus.REJECTED, SuggestionStatus.SUPERSEDED}
    ),
    SuggestionStatus.PROPOSED: frozenset(
        {
            SuggestionStatus.APPROVED,
            SuggestionStatus.APPLIED,
            SuggestionStatus.REJECTED,
            SuggestionStatus.SUPERSEDED,
        }
    ),
    SuggestionStatus.APPROVED: frozenset(
        {SuggestionStatus.APPLIED, SuggestionStatus.REJECTED, SuggestionStatus.SUPERSEDED}
    ),
    SuggestionStatus.APPLIED: frozenset(),
    # A closed pull request may be reopened and merged at any time.
    SuggestionStatus.REJECTED: frozenset({SuggestionStatus.PROPOSED, SuggestionStatus.APPLIED}),
    SuggestionStatus.SUPERSEDED: frozenset({SuggestionStatus.APPLIED}),
}
"""The statuses that may follow each status of a suggestion."""
UNDECIDED = frozenset({SuggestionStatus.REFUSED, SuggestionStatus.TRIED, SuggestionStatus.PROPOSED})
"""Statuses that measuring again may replace, as long as nothing was put on a branch."""


class Guardrail(NamedTuple):
    """A rule that a diff has to keep, and whether it does."""

    rule: str
    ok: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A suggested change of a prompt."""

    experiment: str
    prompt: str
    path: str
    """File of the prompt, from the project's root."""
    base_hash: str
    diff: str
    note: str
    status: SuggestionStatus
    created_at: str
    new_hash: str | None = None
    """Version that it makes; None for a diff that cannot be applied."""
    targets: tuple[str, ...] = ()
    guardrails: tuple[Guardrail, ...] = ()
    evidence: Mapping[str, Any] = field(default_factory=dict)
    forced: bool = False
    """Whether it was proposed unproven."""
    branch: str | None = None
    pull_request: int | None = None
    pull_request_url: str | None = None
    commit_id: str | None = None
    """The commit that put it into the repository."""
    decided_by: str | None = None
    decided_at: str | None = None
    reason: str | None = None
    edited_from: str | None = None
    """Id of the suggestion that it was edited from."""
    author: str | None = None
    """The person who edited it; None if a model wrote it."""
    simulated: bool = False
    cost_microusd: int = 0
    """Cost of making and trying it."""
    runs: tuple[str, ...] = ()
    """Runs that tried it."""
    made_by: MadeBy = MadeBy.REFINE
    hash: str = ""
    """Of experiment, prompt, base and diff; worked out when left out."""

    def __post_init__(self) -> None:
        if not self.hash:
            object.__setattr__(self, "hash", self.content_hash())

    def content_hash(self) -> str:
        """Return the hash of experiment, prompt, base and diff."""
        what = [self.experiment, self.prompt, self.base_hash, self.diff]
        return hashlib.sha256(canonical_json(what).encode("utf-8", "backslashreplace")).hexdigest()

    @property
    def refused(self) -> bool:
        """Whether it broke a guardrail."""
        return self.status is SuggestionStatus.REFUSED

    @property
    def id(self) -> str:
        """The first digits of its hash."""
        return self.hash[:12]

    @property
    def simulation(self) -> str:
        """Which parts of its evidence are simulated, as a label; empty if none is."""
        return str(self.evidence.get("simulation") or "simulated") if self.simulated else ""

    @property
    def proven(self) -> bool:
        """Whether its evidence proves an improvement, on enough held-out cases."""
        # Before 16 held-out cases were required, evidence could be both proven and not verified.
        return self.evidence.get("proven") is True and self.evidence.get("verified") is not False

    def as_json(self) -> dict[str, Any]:
        """Return the suggestion as it appears in `--json`."""
        document = {column: getattr(self, column) for column in _COLUMNS}
        document |= {
            "targets": [*self.targets],
            "runs": [*self.runs],
            "evidence": dict(self.evidence),
        }
        document["guardrails"] = [rail._asdict() for rail in self.guardrails]
        named = {"status": str(self.status), "made_by": str(self.made_by)}
        return {"id": self.id, **document, **named}


class SuggestionComment(NamedTuple):
    """A comment on a suggestion."""

    actor: str
    text: str
    made_at: str


class SuggestionApproval(NamedTuple):
    """The approval of a suggestion by one person."""

    actor: str
    made_at: str


_COLUMNS = tuple(one.name for one in fields(Suggestion))
_LIST = ", ".join(_COLUMNS)


def add_suggestion(connection: sqlite3.Connection, suggestion: Suggestion) -> Suggestion:
    """Store a suggestion in the current transaction, and return it as it is stored.

    One that is known, on no branch and not decided is replaced by what was measured now, and its
    cost grows; one that people have seen or decided about stays as it is.
    """
    stored = _find(connection, "hash = ?", suggestion.hash)
    if stored:
        before = stored[0]
        if before.status not in UNDECIDED or before.branch or before.pull_request:
            return before
        suggestion = replace(
            suggestion,
            created_at=before.created_at,
            cost_microusd=before.cost_microusd + suggestion.cost_microusd,
        )
    _write(connection, suggestion)
    return suggestion


def move_suggestion(
    connection: sqlite3.Connection, suggestion: Suggestion, to: SuggestionStatus, **changes: Any
) -> Suggestion:
    """Give a suggestion another status and other fields; refused where that is no legal move.

    `suggestion` is what the caller saw: if it has moved since then, that is refused as well.
    """
    now = find_suggestion(connection, suggestion.hash)
    if now.status is not suggestion.status:
        raise decided_already(now)
    if to is not now.status and to not in MOVES[now.status]:
        ways = " or ".join(sorted(MOVES[now.status]))
        raise UsageError(
            f"suggestion {now.id} is {now.status}, and cannot become {to}",
            hint=f"it can become {ways}" if ways else "ask for another: edison refine",
        )
    moved = replace(now, status=to, **changes)
    _write(connection, moved)
    return moved


def decided_already(now: Suggestion) -> DecidedAlready:
    """Return the refusal of a decision about a suggestion that is decided."""
    by = f", by {now.decided_by}" if now.decided_by else ""
    return DecidedAlready(
        f"suggestion {now.id} is {now.status} by now{by}", hint=f"look: edison review show {now.id}"
    )


def add_comment(
    connection: sqlite3.Connection, suggestion: Suggestion, comment: SuggestionComment
) -> None:
    """Store a comment on a suggestion."""
    connection.execute(
        "insert into suggestion_comment (suggestion, actor, text, made_at) values (?, ?, ?, ?)",
        (suggestion.id, _storable(comment.actor), _storable(comment.text), comment.made_at),
    )


def add_approval(
    connection: sqlite3.Connection, suggestion: Suggestion, actor: str, now: str
) -> bool:
    """Store the approval of a person; return whether it is their first one."""
    row = (suggestion.id, _storable(actor), now)
    sql = "insert or ignore into suggestion_approval (suggestion, actor, made_at) values (?, ?, ?)"
    return connection.execute(sql, row).rowcount == 1


def _write(connection: sqlite3.Connection, suggestion: Suggestion) -> None:
    values = {column: _stored(getattr(suggestion, column)) for column in _COLUMNS}
    updated = ", ".join(f"{column} = excluded.{column}" for column in _COLUMNS)
    connection.execute(
        f"insert into suggestion (id, {_LIST}) values (?, {marks(_COLUMNS)}) "
        f"on conflict (hash) do update set {updated}",
        (suggestion.id, *values.values()),
    )


def _stored(value: Any) -> Any:
    if isinstance(value, tuple):
        value = [item._asdict() if isinstance(item, Guardrail) else item for item in value]
    if isinstance(value, list | dict):
        return _storable(canonical_json(value), cut=False)
    return _storable(value) if isinstance(value, str) else value


def _storable(text: str, *, cut: bool = True) -> str:
    """Return a text that SQLite takes, of bounded length."""
    text = str(text).encode("utf-8", "backslashreplace").decode("utf-8")
    return f"{text[:MAX_TEXT_CHARS]}..." if cut and len(text) > MAX_TEXT_CHARS else text


def find_suggestion(connection: sqlite3.Connection, start: str) -> Suggestion:
    """Return the suggestion with an id or hash, of which at least 4 digits are given."""
    digits = start.lower()
    matches = []
    if len(digits) >= MIN_ID_CHARS and digits.isalnum():
        matches = _find(connection, "substr(hash, 1, ?) = ?", len(digits), digits)
    if len(matches) == 1:
        return matches[0]
    if matches:
        ids = ", ".join(suggestion.id for suggestion in matches[:5])
        raise UsageError(f"{start!r} is the start of several suggestions", hint=f"one of {ids}")
    raise UsageError(f"there is no suggestion {start!r}", hint="see: edison review list")


def list_suggestions(
    connection: sqlite3.Connection,
    *,
    experiment: str | None = None,
    prompt: str | None = None,
    statuses: Sequence[SuggestionStatus] = (),
) -> list[Suggestion]:
    """Return suggestions, newest first; without `statuses`, all of them."""
    chosen = tuple(map(str, statuses or tuple(SuggestionStatus)))
    return _find(
        connection,
        "(? is null or experiment = ?) and (? is null or prompt = ?) "
        f"and status in ({marks(chosen)})",
        *(experiment, experiment, prompt, prompt),
        *chosen,
    )


def open_suggestions(connection: sqlite3.Connection) -> dict[str, int]:
    """Return how many suggestions wait for a decision, by experiment."""
    rows = connection.execute(
        "select experiment, count(*) from suggestion "
        f"where status in ({', '.join('?' * len(OPEN_STATUSES))}) group by 1",
        tuple(map(str, OPEN_STATUSES)),
    )
    return dict(rows.fetchall())


def comments_of(connection: sqlite3.Connection, suggestion: Suggestion) -> list[SuggestionComment]:
    """Return the comments on a suggestion, oldest first."""
    rows = connection.execute(
        "select actor, text, made_at from suggestion_comment where suggestion = ? order by id",
        (suggestion.id,),
    )
    return [SuggestionComment(*row) for row in rows]


def approvals_of(
    connection: sqlite3.Connection, suggestion: Suggestion
) -> list[SuggestionApproval]:
    """Return the approvals of a suggestion, oldest first."""
    rows = connection.execute(
        "select actor, made_at from suggestion_approval where suggestion = ? order by id",
        (suggestion.id,),
    )
    return [SuggestionApproval(*row) for row in rows]


def rejections(
    connection: sqlite3.Connection, experiment: str, prompt: str, *, limit: int = 5
) -> list[Suggestion]:
    """Return what people rejected with a reason, newest first: the next one should know."""
    rejected = list_suggestions(
        connection, experiment=experiment, prompt=prompt, statuses=(SuggestionStatus.REJECTED,)
    )
    with_reason = [suggestion for suggestion in rejected if suggestion.reason]
    with_reason.sort(
        key=lambda suggestion: suggestion.decided_at or suggestion.created_at, reverse=True
    )
    return with_reason[:limit]


def _find(connection: sqlite3.Connection, where: str, *values: object) -> list[Suggestion]:
    rows = connection.execute(
        f"select {_LIST} from suggestion where {where} order by created_at desc, rowid desc", values
    )
    return [_suggestion(row) for row in rows]


def _suggestion(row: Sequence[Any]) -> Suggestion:
    values = dict(zip(_COLUMNS, row, strict=True))
    try:
        for column in ("targets", "guardrails", "evidence", "runs"):
            values[column] = json.loads(values[column])
        values["targets"], values["runs"] = (
            tuple(map(str, values["targets"])),
            tuple(values["runs"]),
        )
        values["evidence"] = sound_evidence(values["evidence"])
        values["guardrails"] = tuple(Guardrail(**rail) for rail in values["guardrails"])
        values["status"], values["made_by"] = (
            SuggestionStatus(values["status"]),
            MadeBy(values["made_by"]),
        )
    except (ValueError, TypeError) as error:
        raise StoreError(
            f"suggestion {values['hash'][:12]} cannot be read: {error}",
            hint="the results file was changed by another program; compare it with a backup",
        ) from None
    values["simulated"], values["forced"] = bool(values["simulated"]), bool(values["forced"])
    return Suggestion(**values)
