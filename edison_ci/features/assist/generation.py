"""Generated cases: slots sent to the writers in batches, and what becomes of their rows.

All batches are asked for at once. Slots whose row is missing, unusable or a duplicate are asked for
again, with what is there to be avoided; after a few rounds a shortfall is a shortfall. Replies are
stored as they come, so that a command that was stopped continues where it was.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections import Counter
from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple

from edison_ci import utc
from edison_ci._dataclass import dataclass
from edison_ci.config import case_origin, tokens
from edison_ci.errors import CallFailed, EdisonError
from edison_ci.features.assist import case_replies, case_slots, drafting
from edison_ci.judges import instructions as judge_instructions
from edison_ci.records import Case, CaseId, canonical_json

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edison_ci.config.load import Experiment, Project
    from edison_ci.execute.run_options import RunContext
    from edison_ci.features.assist.case_replies import CaseForm, WrittenCase, WrittenRow
    from edison_ci.features.assist.case_slots import CaseSlot
    from edison_ci.features.assist.drafting import Draft
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


class GeneratedCase(NamedTuple):
    """A case that was written and can be used."""

    slot: CaseSlot
    written: WrittenCase
    origin: case_origin.CaseOrigin

    @property
    def id(self) -> str:
        """Its id: by its content."""
        content = canonical_json([self.written.inputs, self.written.expected])
        digest = hashlib.sha256(content.encode("utf-8", errors="surrogatepass")).hexdigest()
        return f"gen-{digest[:12]}"

    def row(self) -> dict[str, Json]:
        """Return the row of a dataset."""
        written = self.written
        found: dict[str, Json] = {"id": self.id, "input": dict(written.inputs)}
        if written.expected is not None:
            found["expected"] = written.expected
        if written.tags:
            found["tags"] = [*written.tags]
        if self.slot.difficulty is not None:
            found["difficulty"] = self.slot.difficulty
        told: dict[str, Json] = {**self.slot.kept(), **self.origin.metadata()}
        return {**found, "metadata": told | ({"reason": written.why} if written.why else {})}

    def case(self, kind: str) -> Case:
        """Return it as a case of an experiment."""
        row = self.row()
        written, metadata = self.written, row["metadata"]
        assert isinstance(metadata, dict)
        return Case(
            CaseId(self.id), written.inputs, written.expected, written.tags, self.slot.difficulty,
            None, metadata, kind,
        )  # fmt: skip


@dataclass(slots=True)
class Generated:
    """What became of an order."""

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
    """The models that write cases of an experiment, and what they are told."""

    project: Project
    experiment: Experiment
    form: CaseForm
    drafters: tuple[drafting.Drafter, ...]
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
    ) -> list[tuple[drafting.DraftJob[tuple[WrittenRow, ...]], list[CaseSlot]]]:
        """Return the calls for these slots."""
        kind = self.form.kind(self.instructions, why=self.why)
        rooms = [self._room(drafter, slots, avoid) for drafter in self.drafters]
        return [
            (
                drafting.DraftJob(
                    self.drafters[writer],
                    kind,
                    self._question(group, avoid),
                    self.seed * 100 + round_number,
                ),
                group,
            )
            for writer, group in case_slots.batches(slots, rooms)
        ]

    def _room(
        self, drafter: drafting.Drafter, slots: Sequence[CaseSlot], avoid: Sequence[str]
    ) -> float:
        """Return the most tokens that a reply of a writer may have."""
        can = drafter.models[0].capabilities
        if can.context is None or not slots:
            return can.max_out or _NO_LIMIT
        kind, question = self.form.kind(self.instructions, why=self.why), self._question([], avoid)
        request = drafter.request(drafter.models[0], kind, question)
        told = sum(tokens.estimate_tokens(message.content) for message in request.messages)
        slot = tokens.estimate_tokens(json.dumps(slots[0].told())) * _EXAMPLES
        return min(can.context - 1.2 * told - slot, can.max_out or _NO_LIMIT)

    def _question(self, slots: Sequence[CaseSlot], avoid: Sequence[str]) -> drafting.Question:
        told = [json.dumps(slot.told(), ensure_ascii=False) for slot in slots]
        pieces = [judge_instructions.FencedText("text", self.brief, "about")]
        if self.experiment.file.objective:
            pieces.append(
                judge_instructions.FencedText("text", self.experiment.file.objective, "objective")
            )
        for prompt in self.experiment.prompts[:1]:
            said = "\n\n".join(section.template.source for section in prompt.sections)
            pieces.append(judge_instructions.FencedText("text", said[: 4 * _SHORT], "prompt"))
        for case in self.examples[:_EXAMPLES]:
            shown: dict[str, Json] = {"input": dict(case.inputs)}
            if case.expected is not None:
                shown["expected"] = case.expected
            text = json.dumps(shown, ensure_ascii=False)
            if len(text) <= _SHORT:
                pieces.append(judge_instructions.FencedText("text", text, "example"))
        if avoid:
            pieces.append(
                judge_instructions.FencedText("text", "\n".join(avoid[-_AVOIDED:]), "there already")
            )
        pieces.append(
            judge_instructions.FencedText("text", f"[{', '.join(told)}]", "slots", as_json=True)
        )
        wanted = (
            f"The material ends here. Write {len(slots)} cases, one for each slot. "
            f"Diversity: {self.diversity} of 10. A case has:\n{self.form.described()}"
        )
        return drafting.Question(
            tuple(pieces),
            wanted,
            {
                "temperature": round(0.5 + 0.05 * self.diversity, 2),
                "seed": self.seed,
                "max_tokens": case_slots.reply_tokens(slots),
            },
            len(slots),
        )

    def write(
        self,
        slots: Sequence[CaseSlot],
        known: KnownCases,
        on_progress: Callable[[Generated], None],
    ) -> Generated:
        """Return the cases that the models wrote; raises CallFailed if there is none at all."""
        found = Generated(len(slots))
        by_slot: dict[int, GeneratedCase] = {}
        open_slots, avoid = [*slots], list[str]()
        last: EdisonError | None = None

        def count(reply: Draft[tuple[WrittenRow, ...]] | EdisonError) -> None:
            if not isinstance(reply, EdisonError):
                found.cost_microusd += reply.cost_microusd
                found.calls += reply.bought
                found.stored += not reply.bought
            on_progress(found)

        for number in range(ROUNDS):
            planned = self.jobs(open_slots, number, avoid)
            replies = drafting.draft_all([job for job, _ in planned], self.left(found), count)
            # In the order of the slots, so that it does not matter which reply came first.
            for (_, group), reply in zip(planned, replies, strict=True):
                if isinstance(reply, EdisonError):
                    found.failed[reply.message] += 1
                    last = reply
                else:
                    found.models[reply.model] = reply.instead_of
                    avoid += self._sort(reply, group, known, found, by_slot)
            found.cases = [by_slot[number] for number in sorted(by_slot)]
            on_progress(found)
            open_slots = [slot for slot in open_slots if slot.number not in by_slot]
            if not open_slots or (last is not None and not isinstance(last, CallFailed)):
                break
        if not found.cases and last is not None:
            raise last
        return found

    def left(self, found: Generated) -> int | None:
        """Return what is left of the budget; None without one."""
        most = self.budget_microusd
        return None if most is None else max(most - found.cost_microusd, 0)

    def _sort(
        self,
        reply: Draft[tuple[WrittenRow, ...]],
        group: Sequence[CaseSlot],
        known: KnownCases,
        found: Generated,
        by_slot: dict[int, GeneratedCase],
    ) -> list[str]:
        """Keep the rows of a reply that can be used; return the texts of repeated ones."""
        slots = {slot.number: slot for slot in group}
        origin = case_origin.CaseOrigin(
            reply.model,
            reply.instructions[:12],
            self.seed,
            utc.timestamp(self.drafters[0].context.now()),
        )
        repeated = []
        for row in reply.value:
            slot = slots.get(row.slot)
            if slot is None or slot.number in by_slot:
                found.refused["that nobody asked for"] += 1
                continue
            try:
                written = self.form.read(slot, row.item)
            except case_replies.Unusable as error:
                found.refused[str(error)] += 1
                continue
            if likeness := known.like(written.inputs):
                found.refused[likeness] += 1
                repeated.append(canonical_json(written.inputs)[:200])
                continue
            known.add(written.inputs)
            by_slot[slot.number] = GeneratedCase(slot, written, origin)
        return repeated


def writers_of(
    project: Project, names: Sequence[str], context: RunContext
) -> tuple[drafting.Drafter, ...]:
    """Return a drafter for each model that writes; the assistant of the project by default."""
    return tuple(
        drafting.Drafter(project, drafting.assistant_of(project, name), context, PURPOSE, _REUSE)
        for name in (dict.fromkeys(names) or (None,))
    )
