"""The refiner: requests to the model that suggests changes, and the parsing of its replies.

The refiner sees the weaknesses of the prompt and failed training cases, never held-out ones. A diff
that breaks a guardrail is asked for again with the reason, twice; refused diffs are stored too. The
instructions are files of the package, and their hash is stored with each suggestion.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edison_ci._dataclass import dataclass
from edison_ci.config.models import sent_params
from edison_ci.judges.instructions import FencedText, fence_message
from edison_ci.judges.judge import Judge
from edison_ci.judges.replies import Failure, reply_object
from edison_ci.numeric import rounded
from edison_ci.proposals.candidate import Candidate
from edison_ci.proposals.guardrails import check_diff, size_limits
from edison_ci.records import Message, SuggestionStatus
from edison_ci.store.suggestions import Guardrail

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from edison_ci.config.models import Model
    from edison_ci.features.refine.weaknesses import Example, WeakComponent, Weakness
    from edison_ci.proposals.candidate import RefineTarget
    from edison_ci.proposals.guardrails import GuardrailContext
    from edison_ci.providers.budget import StoredAnswer
    from edison_ci.records import Completion, Json, Request
    from edison_ci.store.suggestions import Suggestion

    Ask = Callable[[Request], Awaitable[StoredAnswer]]

RE_ASKS = 2
"""Further requests after a refused diff."""
REPLY = "reply"
"""Name of the rule that a reply without a diff breaks."""
MAX_NOTE = 1_000
_MAX_VALUE = 2_000
"""Characters of an input, an answer or a reason in a request."""
_INSTRUCTIONS = Path(__file__).parent / "instructions"
_CLOSING = (
    "The material ends here. Suggest one small change to the prompt and reply with the JSON object."
)


@cache
def _instructions(name: str) -> str:
    return (_INSTRUCTIONS / f"{name}.md").read_text(encoding="utf-8").strip()


def instructions_version() -> str:
    """Return the hash of the instructions of all requests."""
    text = "\n\n".join(_instructions(name) for name in ("refine", "material", "reply"))
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class RejectedSuggestion:
    """An earlier suggestion that was not taken, and why."""

    note: str
    diff: str
    what: str
    """Rejected by a person, or measured without a gain."""
    reason: str

    @classmethod
    def of(cls, suggestion: Suggestion) -> RejectedSuggestion:
        """Return a stored suggestion as the refiner sees it."""
        rejected = suggestion.status is SuggestionStatus.REJECTED
        reason = suggestion.reason if rejected else suggestion.evidence.get("sentence")
        what = "rejected by a person" if rejected else "tried, and not shown to help"
        return cls(suggestion.note, suggestion.diff, what, str(reason or ""))


@dataclass(frozen=True, slots=True)
class RefinePrompt:
    """The request to a refiner about one prompt."""

    target: RefineTarget
    refiner: Judge
    weakness: Weakness
    past: tuple[RejectedSuggestion, ...] = ()
    _system: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_system", self._system_message())

    def request(self, repeat: int, refusals: Sequence[str] = ()) -> Request:
        """Return the call; `refusals` are the reasons why earlier replies were refused."""
        pieces = [*self._pieces()]
        closing = _CLOSING
        for reason in refusals:
            refused = _short(reason)
            closing += (
                f"\n\nA diff that you wrote before was refused: {refused}. Write another one."
            )
        user = fence_message(self._system, pieces, closing, seed=self.refiner.params.get("seed"))
        messages = (Message("system", self._system), Message("user", user))
        return replace(self.refiner.request(messages), repeat=repeat)

    def _system_message(self) -> str:
        path, most = self.target.prompt.path, size_limits(self.target)
        targets = ",\n".join(
            json.dumps(_weak_json(weak_one), ensure_ascii=False)
            for weak_one in self.weakness.targets
        )
        return "\n\n".join(
            (
                _instructions("refine"),
                f"The prompt's file is {path}. It may become at most {most.chars:,} characters "
                f"longer or shorter, with at most {most.lines:,} lines added or removed in all.",
                _instructions("material"),
                f"Criteria:\n\n[\n{targets}\n]",
                _instructions("reply").replace("PATH", path),
            )
        )

    def _pieces(self) -> Iterator[FencedText]:
        target = self.target
        yield FencedText("prompt", target.text, target.prompt.path)
        yield FencedText("text", target.experiment.file.objective, "objective")
        for example in self.weakness.examples:
            yield _piece("example", _example(example))
        for past in self.past:
            facts = {"note": past.note, "diff": past.diff, "what": past.what, "why": past.reason}
            yield _piece("earlier", {key: _short(value) for key, value in facts.items()})


def refiner_of(model: Model) -> Judge:
    """Return a model as a refiner, with its parameters over the defaults."""
    return Judge(model, *sent_params(model, model.params))


def _weak_json(weak_one: WeakComponent) -> dict[str, Json]:
    return {
        "name": weak_one.name,
        "kind": weak_one.kind,
        "description": _short(weak_one.description),
        "score": rounded(weak_one.score, 3),
    }


def _example(example: Example) -> dict[str, Any]:
    case = example.case
    document: dict[str, Any] = {
        "inputs": {name: _bounded(value) for name, value in case.inputs.items()},
        "answer": _short(example.answer),
        "score": example.score,
        "said": [
            {"by": remark.name, "score": remark.score, "reason": _short(remark.reason)}
            for remark in example.remarks
        ],
    }
    return document if case.expected is None else {**document, "expected": _bounded(case.expected)}


def _bounded(value: Json) -> Json:
    """Return a value unchanged if it is short, else the start of it as text."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return value if len(text) <= _MAX_VALUE else _short(text)


def _short(text: str) -> str:
    return text if len(text) <= _MAX_VALUE else f"{text[:_MAX_VALUE]}..."


def _piece(tag: str, value: dict[str, Any]) -> FencedText:
    return FencedText(tag, json.dumps(value, ensure_ascii=False), as_json=True)


@dataclass(frozen=True, slots=True)
class RefinerReply:
    """One reply of a refiner: its candidate and its cost."""

    candidate: Candidate
    cost_microusd: int


async def ask_refiner(
    question: RefinePrompt, repeat: int, ask: Ask, background: GuardrailContext
) -> tuple[RefinerReply, ...]:
    """Return the replies to a question; only the last one can pass every guardrail.

    Raises CallError, and other errors of the client.
    """
    replies: list[RefinerReply] = []
    for _ in range(1 + RE_ASKS):
        refusals = [reply.candidate.reason for reply in replies]
        answer = await ask(question.request(repeat, refusals))
        candidate = read_reply(question.target, answer.completion, background)
        replies.append(RefinerReply(candidate, answer.cost_microusd if answer.bought else 0))
        if candidate.ok:
            break
    return tuple(replies)


def read_reply(
    target: RefineTarget, completion: Completion, background: GuardrailContext
) -> Candidate:
    """Return the candidate in a reply; a reply without a diff gives a refused candidate."""
    reply = reply_object(completion, "diff")
    if isinstance(reply, Failure):
        return Candidate(completion.text, "", (Guardrail(REPLY, False, reply.reason),))
    note, diff = reply.get("note"), reply["diff"]
    if not isinstance(diff, str) or not isinstance(note, str) or not note.strip():
        reason = "the reply is not {note, diff} with two texts"
        return Candidate(completion.text, "", (Guardrail(REPLY, False, reason),))
    return check_diff(target, diff, note.strip()[:MAX_NOTE], background)
