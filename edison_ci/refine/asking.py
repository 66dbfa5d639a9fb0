"""What a refiner is asked, and what is taken from its reply.

It is told what the prompt is weak in and shown training cases that went wrong, never one that is
held out. A diff that breaks a guardrail is asked for again with the reason, twice; every one that
was refused is kept. Instructions are files of the package; their hash goes with each suggestion.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edison_ci._dataclass import dataclass
from edison_ci.config.model_entry import takes
from edison_ci.config.models import DEFAULT_PARAMS
from edison_ci.judges.asking import Judge
from edison_ci.judges.fencing import Piece, fenced
from edison_ci.judges.replies import Failure, reply_object
from edison_ci.records import Message
from edison_ci.refine.candidate import Candidate
from edison_ci.refine.guardrails import judged
from edison_ci.rounding import rounded
from edison_ci.store.suggestions import Guardrail, Status

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from edison_ci.config.models import Model
    from edison_ci.providers.budgeting import Paid
    from edison_ci.records import Completion, Json, Request
    from edison_ci.refine.candidate import Subject
    from edison_ci.refine.guardrails import Background
    from edison_ci.refine.weaknesses import Example, Target, Weakness
    from edison_ci.store.suggestions import Suggestion

    Ask = Callable[[Request], Awaitable[Paid]]

RE_ASKS = 2
"""How often a diff that was refused is asked for again."""
REPLY = "reply"
"""The rule that a reply breaks which holds no diff at all."""
MAX_NOTE = 1_000
_MAX_VALUE = 2_000
"""Characters of an input, an answer or a reason that a refiner is shown."""
_SHIPPED = Path(__file__).parent / "instructions"
_CLOSING = (
    "The material ends here. Suggest one small change to the prompt and reply with the JSON object."
)


@cache
def _shipped(name: str) -> str:
    return (_SHIPPED / f"{name}.md").read_text(encoding="utf-8").strip()


def instructions_version() -> str:
    """Return the hash of everything that every refiner is told."""
    told = "\n\n".join(_shipped(name) for name in ("refine", "material", "reply"))
    return hashlib.sha256(told.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Past:
    """A suggestion that did not make it, and why."""

    note: str
    diff: str
    what: str
    """Rejected, or tried without a gain."""
    reason: str

    @classmethod
    def of(cls, suggestion: Suggestion) -> Past:
        """Return a suggestion as a lesson."""
        rejected = suggestion.status is Status.REJECTED
        said = suggestion.reason if rejected else suggestion.evidence.get("sentence")
        what = "rejected by a person" if rejected else "tried, and not shown to help"
        return cls(suggestion.note, suggestion.diff, what, str(said or ""))


@dataclass(frozen=True, slots=True)
class Question:
    """What a refiner is asked about a prompt."""

    subject: Subject
    refiner: Judge
    weakness: Weakness
    past: tuple[Past, ...] = ()
    _told: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_told", self._telling())

    def request(self, draw: int, refusals: Sequence[str] = ()) -> Request:
        """Return the call; `refusals` say what was wrong with the replies before."""
        pieces = [*self._pieces()]
        closing = _CLOSING
        for reason in refusals:
            said = _short(reason)
            closing += f"\n\nA diff that you wrote before was refused: {said}. Write another one."
        asked = fenced(self._told, pieces, closing, seed=self.refiner.params.get("seed"))
        messages = (Message("system", self._told), Message("user", asked))
        return replace(self.refiner.request(messages), draw=draw)

    def _telling(self) -> str:
        path = self.subject.prompt.path
        targets = ",\n".join(
            json.dumps(_target(target), ensure_ascii=False) for target in self.weakness.targets
        )
        return "\n\n".join(
            (
                _shipped("refine"),
                f"The prompt's file is {path}.",
                _shipped("material"),
                f"Criteria:\n\n[\n{targets}\n]",
                _shipped("reply").replace("PATH", path),
            )
        )

    def _pieces(self) -> Iterator[Piece]:
        subject = self.subject
        yield Piece("prompt", subject.text, subject.prompt.path)
        yield Piece("text", subject.experiment.file.objective, "objective")
        for example in self.weakness.examples:
            yield _piece("example", _example(example))
        for past in self.past:
            told = {"note": past.note, "diff": past.diff, "what": past.what, "why": past.reason}
            yield _piece("earlier", {key: _short(value) for key, value in told.items()})


def refiner_of(model: Model) -> Judge:
    """Return a model as a refiner: its own parameters over the defaults of all models."""
    taken = takes(model.provider)
    defaults = {key: value for key, value in DEFAULT_PARAMS.items() if key in taken}
    if "top_p" in model.params:
        defaults.pop("temperature", None)
    return Judge(model, {**defaults, **model.params})


def _target(target: Target) -> dict[str, Json]:
    return {
        "name": target.name,
        "kind": target.kind,
        "description": _short(target.says),
        "score": rounded(target.score, 3),
    }


def _example(example: Example) -> dict[str, Any]:
    case = example.case
    told: dict[str, Any] = {
        "inputs": {name: _bounded(value) for name, value in case.inputs.items()},
        "answer": _short(example.answer),
        "score": example.score,
        "said": [
            {"by": remark.name, "score": remark.score, "reason": _short(remark.reason)}
            for remark in example.remarks
        ],
    }
    return told if case.expected is None else {**told, "expected": _bounded(case.expected)}


def _bounded(value: Json) -> Json:
    """Return a value that is not long: as it is, or the start of it as a text."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return value if len(text) <= _MAX_VALUE else _short(text)


def _short(text: str) -> str:
    return text if len(text) <= _MAX_VALUE else f"{text[:_MAX_VALUE]}..."


def _piece(tag: str, value: dict[str, Any]) -> Piece:
    return Piece(tag, json.dumps(value, ensure_ascii=False), as_json=True)


# --- asking ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply of a refiner: the candidate in it, and what it cost."""

    candidate: Candidate
    cost_microusd: int


async def ask_for(
    question: Question, draw: int, ask: Ask, background: Background
) -> tuple[Reply, ...]:
    """Return the replies to a question, of which the last one may keep every guardrail.

    Raises CallError, or whatever else keeps the call from being made.
    """
    replies: list[Reply] = []
    for _ in range(1 + RE_ASKS):
        refusals = [reply.candidate.reason for reply in replies]
        paid = await ask(question.request(draw, refusals))
        candidate = read_reply(question.subject, paid.completion, background)
        replies.append(Reply(candidate, paid.cost_microusd if paid.bought else 0))
        if candidate.ok:
            break
    return tuple(replies)


def read_reply(subject: Subject, completion: Completion, background: Background) -> Candidate:
    """Return the candidate in a reply; one that holds none is refused as such."""
    found = reply_object(completion, "diff")
    if isinstance(found, Failure):
        return Candidate(completion.text, "", (Guardrail(REPLY, False, found.reason),))
    note, diff = found.get("note"), found["diff"]
    if not isinstance(diff, str) or not isinstance(note, str) or not note.strip():
        said = "the reply is not {note, diff} with two texts"
        return Candidate(completion.text, "", (Guardrail(REPLY, False, said),))
    return judged(subject, diff, note.strip()[:MAX_NOTE], background)
