"""A rubric, a case, a judge, and people who ask it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from edison_ci.config.model_entry import Limits
from edison_ci.config.models import Model
from edison_ci.config.rubric import Criterion, RubricFile, Scale
from edison_ci.contracts import CallError
from edison_ci.errors import Location
from edison_ci.judges.instructions import load_instructions
from edison_ci.judges.judge import Judge
from edison_ci.judges.pointwise import Pointwise
from edison_ci.records import Case, CaseId, Completion, Request

if TYPE_CHECKING:
    from collections.abc import Callable


def criterion(name: str, weight: float = 0.5, **options: Any) -> Criterion:
    scale = options.pop("scale", Scale(min=0, max=5))
    return Criterion(
        name=name,
        description=f"How much {name.lower()} there is.",
        weight=weight,
        scale=scale,
        **options,
    )


def rubric(*criteria: Criterion, **options: Any) -> RubricFile:
    return RubricFile(rubric="quality", criteria=criteria, normalize=True, **options)


TWO = rubric(criterion("Warmth"), criterion("Edge Cases", scale=Scale(min=0, max=10)))
CASE = Case(
    CaseId("ada"), {"name": "Ada", "words": ["kettle", "lamp"]}, expected="Hello Ada", line=1
)


def model(provider: str = "openai", name: str = "judge", **params: Any) -> Model:
    return Model(
        name=name,
        provider=provider,
        model="judge" if provider == "sim" else "some-model",
        base_url=None if provider == "sim" else "https://judge.example/v1",
        base_url_env=None,
        keys={},
        options={},
        params=params,
        price=None,
        limits=Limits(),
        fallback=(),
        store=None,
        where=Location("models.yaml"),
    )


def pointwise(of: RubricFile = TWO, *, provider: str = "openai", name: str = "judge") -> Pointwise:
    return Pointwise(Judge.of(model(provider, name)), of, load_instructions("pointwise"))


def scores(flags: Any = (), **values: Any) -> str:
    """A good reply; underscores of names stand for blanks."""
    entries = {
        name.replace("_", " "): {"reason": "because", "score": value}
        for name, value in values.items()
    }
    return json.dumps({"scores": entries, "flags": list(flags)})


GOOD = scores(Warmth=4, Edge_Cases=5)


class Scripted:
    """Answers in turn; the last answer is repeated. An error is raised."""

    def __init__(self, *answers: str | Completion | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, Request]] = []

    async def __call__(self, name: str, request: Request) -> Completion:
        self.asked.append((name, request))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, Completion) else Completion(answer)


class Answering:
    """Answers each request by a function of it."""

    def __init__(self, answer: Callable[[Request], str | Completion | CallError]) -> None:
        self.answer = answer
        self.asked: list[tuple[str, Request]] = []

    async def __call__(self, name: str, request: Request) -> Completion:
        self.asked.append((name, request))
        found = self.answer(request)
        if isinstance(found, CallError):
            raise found
        return found if isinstance(found, Completion) else Completion(found)


def user_message(request: Request) -> str:
    return next(m.content for m in request.messages if m.role == "user")


def system_message(request: Request) -> str:
    return next(m.content for m in request.messages if m.role == "system")
