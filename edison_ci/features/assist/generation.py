"""Generated cases: slots sent to the writers in batches, rows that fit, and a second opinion.

All batches are asked for at once. Slots whose row is missing, unusable or a duplicate are asked for
again, with what is there to be avoided; after a few rounds a shortfall is a shortfall. Replies are
stored as they come, so that a command that was stopped continues where it was.

A second model answers each case before it sees whether it agrees; a case that it does not agree
with stays unverified, with its reason.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections import Counter
from dataclasses import field, replace
from typing import TYPE_CHECKING, NamedTuple

from edison_ci import utc
from edison_ci._dataclass import dataclass
from edison_ci.config import case_facts, tokens
from edison_ci.errors import CallFailed, EdisonError
from edison_ci.features.assist import case_replies, case_slots, draft_kinds, drafting
from edison_ci.features.assist.drafting import Drafter, DraftJob
from edison_ci.judges.instructions import FencedText
from edison_ci.records import Case, CaseId, canonical_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from edison_ci.config.load import Experiment, Project
    from edison_ci.execute.run_options import RunContext
    from edison_ci.features.assist.case_replies import CaseForm, WrittenCase, WrittenRow
    from edison_ci.features.assist.case_slots import CaseSlot
    from edison_ci.features.assist.drafting import Draft, DraftTask
    from edison_ci.records import Json
    from edison_ci.results.case_likeness import KnownCases

PURPOSE = "dataset"
"""What the calls are booked for."""
ROUNDS = 3
_REUSE = dt.timedelta(days=1)
_EXAMPLES = 3
_SHORT = 1_500
_AVOIDED = 20
_NO_LIMIT = 1_000_000
"""Tokens that no reply has."""
_OPINIONS = 8
"""Cases in one call to a second model."""
_TOKENS_AN_OPINION = 300
_MOST_REASON = 300


class GeneratedCase(NamedTuple):
    """A case that was written and can be used."""

    slot: CaseSlot
    written: WrittenCase
    origin: case_facts.CaseOrigin

    @property
    def id(self) -> str:
        """Its id: by its content."""
        content = canonical_json([self.written.inputs, self.written.expected])
        digest = hashlib.sha256(content.encode("utf-8", errors="surrogatepass")).hexdigest()
        return f"gen-{digest[:12]}"

    def row(self) -> dict[str, Json]:
        """Return the row of a dataset."""
        written = self.written
        metadata: dict[str, Json] = {**self.slot.kept(), **self.origin.metadata()}
        row: dict[str, Json] = {"id": self.id, "input": dict(written.inputs)}
        row |= {} if written.expected is None else {"expected": written.expected}
        row |= {"tags": [*written.tags]} if written.tags else {}
        row |= {} if self.slot.difficulty is None else {"difficulty": self.slot.difficulty}
        return row | {"metadata": metadata | ({"reason": written.why} if written.why else {})}

    def case(self, kind: str) -> Case:
        """Return it as a case of an experiment."""
        written, metadata = self.written, self.row()["metadata"]
        assert isinstance(metadata, dict)
        return Case(
            CaseId(self.id), written.inputs, written.expected, written.tags, self.slot.difficulty,
            None, metadata, kind,
        )  # fmt: skip


@dataclass(slots=True)
class Generated:
    """The result of an order."""

    wanted: int
    cases: list[GeneratedCase] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    """Rows that were left out, by reason."""
    failed: Counter[str] = field(default_factory=Counter)
    """Replies that could not be used, by reason."""
    models: dict[str, str] = field(default_factory=dict)
    """Who wrote, and for whom if another model was asked first."""
    cost_microusd: int = 0
    calls: int = 0
    stored: int = 0
    sifted: int = 0
    """Cases that were written, and left out on purpose."""

    @property
    def missing(self) -> int:
        """The shortfall."""
        return self.wanted - self.sifted - len(self.cases)

    @property
    def edges(self) -> int:
        """The number of edge cases."""
        return sum(1 for case in self.cases if case.slot.edge)


@dataclass(frozen=True, slots=True)
class Writers:
    """The models that write cases of an experiment, and what they are asked for."""

    project: Project
    experiment: Experiment
    form: CaseForm
    drafters: tuple[Drafter, ...]
    brief: str
    """What the cases are about."""
    diversity: int
    seed: int
    examples: tuple[Case, ...] = ()
    instructions: str = "cases"
    why: bool = False
    """Whether each case comes with a reason."""
    budget_microusd: int | None = None

    def jobs(
        self, slots: Sequence[CaseSlot], round_number: int = 0, avoid: Sequence[str] = ()
    ) -> list[tuple[DraftJob[tuple[WrittenRow, ...]], list[CaseSlot]]]:
        """Return the calls for these slots."""
        rooms = [self._room(drafter, slots, avoid) for drafter in self.drafters]
        number = self.seed * 100 + round_number
        return [
            (DraftJob(self.drafters[writer], self._task(group, avoid), number), group)
            for writer, group in case_slots.batches(slots, rooms)
        ]

    def _room(self, drafter: Drafter, slots: Sequence[CaseSlot], avoid: Sequence[str]) -> float:
        """Return the most tokens that a reply of a writer may have."""
        can = drafter.first.capabilities
        if can.context is None or not slots:
            return can.max_out or _NO_LIMIT
        request = drafter.request(drafter.first, self._task([], avoid))
        sent = sum(tokens.estimate_tokens(message.content) for message in request.messages)
        slot = tokens.estimate_tokens(json.dumps(slots[0].requested())) * _EXAMPLES
        return min(can.context - 1.2 * sent - slot, can.max_out or _NO_LIMIT)

    def _task(
        self, slots: Sequence[CaseSlot], avoid: Sequence[str]
    ) -> DraftTask[tuple[WrittenRow, ...]]:
        requested = [json.dumps(slot.requested(), ensure_ascii=False) for slot in slots]
        pieces = [*draft_kinds.material(about=self.brief, objective=self.experiment.file.objective)]
        for prompt in self.experiment.prompts[:1]:
            source = "\n\n".join(section.template.source for section in prompt.sections)
            pieces.append(FencedText("text", source[: 4 * _SHORT], "prompt"))
        for case in self.examples[:_EXAMPLES]:
            example: dict[str, Json] = {"input": dict(case.inputs)}
            if case.expected is not None:
                example["expected"] = case.expected
            text = json.dumps(example, ensure_ascii=False)
            if len(text) <= _SHORT:
                pieces.append(FencedText("text", text, "example"))
        pieces += draft_kinds.material(**{"there already": "\n".join(avoid[-_AVOIDED:])})
        pieces.append(FencedText("text", f"[{', '.join(requested)}]", "slots", as_json=True))
        task = self.form.task(self.instructions, why=self.why).about(
            tuple(pieces),
            f"Write {len(slots)} cases, one for each slot. "
            f"Diversity: {self.diversity} of 10. A case has:\n{self.form.described()}",
        )
        params = {
            "temperature": round(0.5 + 0.05 * self.diversity, 2),
            "seed": self.seed,
            "max_tokens": case_slots.reply_tokens(slots),
        }
        return replace(task, params=params, items=len(slots))

    def write(
        self,
        slots: Sequence[CaseSlot],
        present: KnownCases,
        on_progress: Callable[[Generated], None],
    ) -> Generated:
        """Return the cases that the models wrote; raises CallFailed if there is none at all."""
        result = Generated(len(slots))
        by_slot: dict[int, GeneratedCase] = {}
        open_slots, avoid = [*slots], list[str]()
        last: EdisonError | None = None

        def count(reply: Draft[tuple[WrittenRow, ...]] | EdisonError) -> None:
            if not isinstance(reply, EdisonError):
                result.cost_microusd += reply.cost_microusd
                result.calls += reply.bought
                result.stored += not reply.bought
            on_progress(result)

        for number in range(ROUNDS):
            planned = self.jobs(open_slots, number, avoid)
            replies = drafting.draft_all([job for job, _ in planned], self.left(result), count)
            # In the order of the slots, so that it does not matter which reply came first.
            for (_, group), reply in zip(planned, replies, strict=True):
                if isinstance(reply, EdisonError):
                    result.failed[reply.message] += 1
                    last = reply
                else:
                    result.models[reply.model] = reply.instead_of
                    avoid += self._sort(reply, group, present, result, by_slot)
            result.cases = [by_slot[number] for number in sorted(by_slot)]
            on_progress(result)
            open_slots = [slot for slot in open_slots if slot.number not in by_slot]
            if any(slot.edge for slot in slots):
                open_slots = case_slots.with_edges(open_slots, len(slots), result.edges)
            if not open_slots or (last is not None and not isinstance(last, CallFailed)):
                break
        if not result.cases and last is not None:
            raise last
        return result

    def left(self, result: Generated) -> int | None:
        """Return what is left of the budget; None without one."""
        most = self.budget_microusd
        return None if most is None else max(most - result.cost_microusd, 0)

    def _sort(
        self,
        reply: Draft[tuple[WrittenRow, ...]],
        group: Sequence[CaseSlot],
        present: KnownCases,
        result: Generated,
        by_slot: dict[int, GeneratedCase],
    ) -> list[str]:
        """Keep the rows of a reply that can be used; return the texts of repeated ones."""
        slots = {slot.number: slot for slot in group}
        origin = case_facts.CaseOrigin(
            reply.model,
            reply.instructions[:12],
            self.seed,
            utc.timestamp(self.drafters[0].context.now()),
        )
        repeated = []
        for row in reply.value:
            slot = slots.get(row.slot)
            if slot is None or slot.number in by_slot:
                result.refused["that nobody asked for"] += 1
                continue
            try:
                written = self.form.read(slot, row.item)
            except case_replies.Unusable as error:
                result.refused[str(error)] += 1
                continue
            if likeness := present.like(written.inputs):
                result.refused[likeness] += 1
                repeated.append(canonical_json(written.inputs)[:200])
                continue
            present.add(written.inputs)
            by_slot[slot.number] = GeneratedCase(slot, written, origin)
        return repeated


def writers_of(project: Project, names: Sequence[str], context: RunContext) -> tuple[Drafter, ...]:
    """Return a drafter for each model that writes; the assistant of the project by default."""
    return tuple(
        Drafter(project, drafting.assistant_of(project, name), context, PURPOSE, _REUSE)
        for name in (dict.fromkeys(names) or (None,))
    )


class Opinion(NamedTuple):
    """What a second model says about an expected answer."""

    case: int
    agrees: bool
    reason: str


@dataclass(slots=True)
class Agreement:
    """Opinions of a second model on expected answers, and what they cost."""

    asked: int
    agreed: dict[int, str] = field(default_factory=dict)
    """The model that agrees, by the place of the case; no model agrees with itself."""
    doubts: list[dict[str, str]] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    cost_microusd: int = 0

    def add(self, place: int, case: Case, opinion: Opinion, model: str) -> None:
        """Count the opinion of a model on a case."""
        if not opinion.agrees:
            self.doubts.append({"case": str(case.id), "by": model, "reason": opinion.reason})
        elif model != case_facts.writer_of(case.metadata):
            self.agreed[place] = model


def _read_opinions(items: Sequence[Json]) -> tuple[Opinion, ...]:
    opinions = []
    for item in items:
        if not isinstance(item, dict):
            continue
        case, agrees, reason = item.get("case"), item.get("agrees"), item.get("reason")
        if isinstance(case, int) and isinstance(agrees, bool) and isinstance(reason, str):
            opinions.append(Opinion(case, agrees, " ".join(reason.split())[:_MOST_REASON]))
    if not opinions:
        raise drafting.DoesNotFit("no opinion names its case")
    return tuple(opinions)


_OPINION: dict[str, Json] = {
    "case": {"type": "integer"},
    "own_answer": {"type": "string"},
    "agrees": {"type": "boolean"},
    "reason": {"type": "string"},
}


def verification_jobs(
    drafter: Drafter, experiment: Experiment, cases: Sequence[Case]
) -> list[DraftJob[tuple[Opinion, ...]]]:
    """Return the calls that ask for opinions on the expected answers of cases."""
    jobs = []
    for start in range(0, len(cases), _OPINIONS):
        rows: list[Json] = [
            {"case": number, "input": dict(case.inputs), "expected": case.expected}
            for number, case in enumerate(cases[start : start + _OPINIONS], start=start + 1)
        ]
        text = json.dumps(rows, ensure_ascii=False)
        task = drafting.list_task("verify", "opinions", _OPINION, _read_opinions).about(
            (
                *draft_kinds.material(objective=experiment.file.objective),
                FencedText("text", text, "cases", as_json=True),
            ),
            f"Give your opinion on these {len(rows)} cases.",
        )
        most = {"max_tokens": _TOKENS_AN_OPINION * (len(rows) + 1)}
        jobs.append(DraftJob(drafter, replace(task, params=most, items=len(rows))))
    return jobs


def verify(
    jobs: Sequence[DraftJob[tuple[Opinion, ...]]],
    cases: Sequence[Case],
    budget_microusd: int | None = None,
) -> Agreement:
    """Return the opinions of a second model; a reply that cannot be used leaves cases open."""
    agreement = Agreement(len(cases))
    for number, reply in enumerate(drafting.draft_all(jobs, budget_microusd)):
        if isinstance(reply, EdisonError):
            agreement.failed.append(reply.message)
            continue
        agreement.cost_microusd += reply.cost_microusd
        opinions: dict[int, Opinion] = {}
        for opinion in reply.value:
            opinions.setdefault(opinion.case - 1, opinion)
        for place in range(number * _OPINIONS, min((number + 1) * _OPINIONS, len(cases))):
            if place in opinions:
                agreement.add(place, cases[place], opinions[place], reply.model)
    return agreement


_TEXTS = {
    "empty": "",
    "blank": " \n\t ",
    "one character": "?",
    "very long": "word " * 800,
    "right to left": "\u05e9\u05dc\u05d5\u05dd \u202eabc\u202c 123",
    "zero width and combining": "a\u200bb\u200dc e\u0301\u0302\u0303",
    "emoji": "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467 \u2764\ufe0f",
    "markup": "<b>bold</b> & {{ braces }} `code` | table | \\n",
}
_NUMBERS: dict[str, Json] = {
    "zero": 0,
    "negative": -1,
    "huge": 10**15,
    "tiny fraction": 1e-9,
}
_OTHERS: dict[str, dict[str, Json]] = {
    "boolean": {"true": True, "false": False},
    "list": {"empty": []},
    "object": {"empty": {}},
}


def boundary_cases(form: CaseForm, case: Case, seed: int, at: str) -> list[GeneratedCase]:
    """Return a known case with each input at its limits, as far as the prompts can use it."""
    origin = case_facts.CaseOrigin(case_facts.EDISON, "", seed, at)
    cases = []
    for name, kind in form.types.items():
        values: Mapping[str, Json] = (
            _TEXTS if kind == "string" else _NUMBERS if kind == "number" else _OTHERS[kind]
        )
        for word, value in values.items():
            inputs = {**case.inputs, name: value}
            slot = case_slots.CaseSlot(0, 4, attack=f"boundary: {name} is {word}")
            try:
                written = form.read(slot, {"input": inputs, "tags": ["boundary"]})
            except case_replies.Unusable:
                continue
            written = written._replace(why=f"{name} is {word}")
            cases.append(GeneratedCase(slot, written, origin))
    return cases
