"""Agreement of a second model with expected answers.

The second model answers each case before it sees whether it agrees; a case that it does not agree
with stays unverified, and its reason is told.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.errors import EdisonError
from edison_ci.features.assist.drafting import DoesNotFit, DraftJob, Question, draft_all, list_kind
from edison_ci.judges import instructions
from edison_ci.judges.replies import object_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.config.load import Experiment
    from edison_ci.features.assist.drafting import Drafter, DraftKind
    from edison_ci.records import Json

_BATCH = 8
_TOKENS_A_CASE = 300
_MOST_REASON = 300


class CaseAnswer(NamedTuple):
    """A case with its expected answer."""

    inputs: dict[str, Json]
    expected: Json


class Opinion(NamedTuple):
    """What a second model says about an expected answer."""

    case: int
    agrees: bool
    reason: str
    model: str = ""


class Verified(NamedTuple):
    """Opinions by the place of the case, and what they cost."""

    opinions: dict[int, Opinion]
    cost_microusd: int
    failed: list[str]


def _read(items: Sequence[Json]) -> tuple[Opinion, ...]:
    found = []
    for item in items:
        if not isinstance(item, dict):
            continue
        case, agrees, reason = item.get("case"), item.get("agrees"), item.get("reason")
        if isinstance(case, int) and isinstance(agrees, bool) and isinstance(reason, str):
            found.append(Opinion(case, agrees, " ".join(reason.split())[:_MOST_REASON]))
    if not found:
        raise DoesNotFit("no opinion names its case")
    return tuple(found)


OPINIONS: DraftKind[tuple[Opinion, ...]] = list_kind(
    "verify",
    "opinions",
    object_schema(
        case={"type": "integer"},
        own_answer={"type": "string"},
        agrees={"type": "boolean"},
        reason={"type": "string"},
    ),
    _read,
)


def verification_jobs(
    drafter: Drafter, experiment: Experiment, cases: Sequence[CaseAnswer]
) -> list[DraftJob[tuple[Opinion, ...]]]:
    """Return the calls that ask for opinions on these cases."""
    jobs = []
    for start in range(0, len(cases), _BATCH):
        rows = [
            {"case": start + n, "input": case.inputs, "expected": case.expected}
            for n, case in enumerate(cases[start : start + _BATCH], start=1)
        ]
        pieces = [
            instructions.FencedText(
                "text", json.dumps(rows, ensure_ascii=False), "cases", as_json=True
            )
        ]
        if experiment.file.objective:
            pieces.insert(
                0, instructions.FencedText("text", experiment.file.objective, "objective")
            )
        wanted = f"The material ends here. Give your opinion on these {len(rows)} cases."
        most = {"max_tokens": _TOKENS_A_CASE * (len(rows) + 1)}
        jobs.append(DraftJob(drafter, OPINIONS, Question(tuple(pieces), wanted, most, len(rows))))
    return jobs


def verify(
    jobs: Sequence[DraftJob[tuple[Opinion, ...]]], budget_microusd: int | None = None
) -> Verified:
    """Return the opinions of a second model; a reply that cannot be used leaves cases open."""
    found = Verified({}, 0, [])
    for place, reply in enumerate(draft_all(jobs, budget_microusd)):
        if isinstance(reply, EdisonError):
            found.failed.append(reply.message)
            continue
        found = found._replace(cost_microusd=found.cost_microusd + reply.cost_microusd)
        own = range(place * _BATCH, (place + 1) * _BATCH)
        for opinion in reply.value:
            if opinion.case - 1 in own:
                found.opinions.setdefault(opinion.case - 1, opinion._replace(model=reply.model))
    return found
