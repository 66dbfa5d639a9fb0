"""A project whose model does what its prompt says, and a refiner that replies as it is told.

Greeted by name, everybody gets `Hello NAME.`; where the prompt asks for a welcome there is one, and
where it asks for a shout the name is lost. So a diff can be made to help, to harm or to do nothing.
"""

from __future__ import annotations

import contextlib
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from edison_ci.config.holdout import holdout_of
from edison_ci.config.load import load_project
from edison_ci.execute.grading import CellGrader
from edison_ci.execute.run_options import RunContext
from edison_ci.features.refine.optimize import OptimizeOptions as SearchOrders
from edison_ci.features.refine.optimize import OptimizeResult, optimize
from edison_ci.features.refine.refinement import RefineOptions, RefineResult, refine
from edison_ci.features.refine.refiner import refiner_of
from edison_ci.features.refine.search import Generation, SearchLimits
from edison_ci.features.refine.trials import Allowance, TrialRunner
from edison_ci.features.simulator.assignment import parse_blocks
from edison_ci.features.simulator.refiner import unified_diff
from edison_ci.proposals.candidate import target_of
from edison_ci.providers.adapters import provider_for
from edison_ci.records import Completion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from edison_ci.config.models import Model
    from edison_ci.records import Request
    from edison_ci.store.ledger import SpendingCap
    from tests.conftest import Folder
    from tests.loopback.server import LoopbackServer

PATH = "prompts/hello.md"
PROMPT = (
    "---\nid: hello\n---\n# system\nYou work at the door of a museum, and you are brief.\n\n"
    "# user\nSay hello to {{ name }} in one sentence, and nothing else.\n"
)
EXPERIMENT = """experiment: hello
objective: Greet people by their name and make them welcome.
prompts: [prompts/hello.md]
models: [small]
dataset: datasets/names.jsonl
split: {holdout: 0.4, seed: 0}
checks:
  - contains: "{{ expected }}"
  - contains: {value: Welcome, name: welcome}
refine: {by: refiner, examples: 5}
"""
WELCOME = "Bid them welcome."
SHOUT = "And shout."


MANNERS = {
    "bow": "Bow to them.",
    "coat": "Take their coat.",
    "map": "Hand them a map.",
    "smile": "Smile at them.",
    "ticket": "Ask for the ticket.",
    "welcome": WELCOME,
}
"""What a museum wants of its door, and the instruction by which it gets it."""


def mannered(folder: Folder, *, cases: int = 60, limits: str = "") -> Folder:
    """Write a project with room for several improvements, each worth a check."""
    project(folder, cases=cases)
    checks = "".join(f"  - contains: {{value: <{name}>, name: {name}}}\n" for name in MANNERS)
    folder.edit("experiments/hello.yaml", "  - contains: {value: Welcome, name: welcome}\n", checks)
    for model, most in (("small", 64), ("refiner", 256)):
        brief = f"model: {model}, params: {{max_tokens: {most}}},"
        folder.edit("models.yaml", f"model: {model},", brief)
    refine = f"refine: {{by: refiner, examples: 5{limits}}}"
    folder.edit("experiments/hello.yaml", "refine: {by: refiner, examples: 5}", refine)
    return folder


def well_mannered(request: Request) -> str:
    """Return what the model at the door does, each thing that it is told."""
    told = request.messages[-1].content
    name = told.partition("Say hello to ")[2].partition(" in one")[0]
    hello = "HELLO!" if SHOUT in told else f"Hello {name}."
    return hello + "".join(f" <{what}>" for what, line in MANNERS.items() if line in told)


def mended(request: Request) -> str:
    """Return a refiner's reply: an instruction for one of the weak checks, by the repeat."""
    weak = re.findall(r'"name": "(\w+)", "kind": "check"', request.messages[0].content)
    blocks = parse_blocks(request.messages[-1].content) or ()
    (text,) = (block.text for block in blocks if block.tag == "prompt")
    text = text if text.endswith("\n") else f"{text}\n"
    name = weak[request.repeat % len(weak)]
    found = re.search(r"^id: (\w+)$", text, re.M)
    path = f"prompts/{found[1]}.md" if found else PATH
    return reply(MANNERS.get(name, SHOUT), note=f"It helps with {name}.", text=text, path=path)


def project(folder: Folder, *, cases: int = 60) -> Folder:
    """Write the project into a folder."""
    folder.write("edison.yaml", "version: 1\nproject: museum\n")
    folder.write(
        "models.yaml",
        "small: {provider: sim, model: small, price: {in: 1, out: 1}}\n"
        "refiner: {provider: sim, model: refiner, price: {in: 1, out: 1}}\n",
    )
    folder.write(PATH, PROMPT)
    folder.write("experiments/hello.yaml", EXPERIMENT)
    rows = (
        {"id": f"c{n}", "input": {"name": f"Visitor{n}"}, "expected": f"Visitor{n}"}
        for n in range(cases)
    )
    folder.write("datasets/names.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows))
    return folder


def reply(
    *lines: str, note: str = "It bids people welcome.", text: str = PROMPT, path: str = PATH
) -> str:
    """Return the reply that adds lines to the end of the prompt."""
    after = text + "".join(f"{line}\n" for line in lines)
    return json.dumps({"note": note, "diff": unified_diff(text, after, path)})


@dataclass
class Scripted:
    """Answers by a function, and keeps what it was asked."""

    answer: Callable[[Request], str]
    asked: list[Request] = field(default_factory=list)

    async def complete(self, request: Request) -> Completion:
        self.asked.append(request)
        text = self.answer(request)
        return Completion(text, tokens_in=100, tokens_out=10, served_model=f"sim/{request.model}")


def greeting(request: Request) -> str:
    """Return what the model at the door says."""
    told = request.messages[-1].content
    name = told.partition("Say hello to ")[2].partition(" in one")[0]
    hello = "HELLO!" if "shout" in told else f"Hello {name}."
    return f"{hello} Welcome." if "welcome" in told else hello


@dataclass
class Museum:
    """The project with its models."""

    folder: Folder
    replies: Sequence[str | Exception] = ()
    budget_microusd: int | None = None
    steps: list[str] = field(default_factory=list)
    generations: list[Generation] = field(default_factory=list)
    greeter: Scripted = field(default_factory=lambda: Scripted(greeting))
    refiner: Scripted = field(init=False)

    def __post_init__(self) -> None:
        left = iter(self.replies)

        def answer(_: Request) -> str:
            said = next(left)
            if isinstance(said, Exception):
                raise said
            return said

        self.refiner = Scripted(answer)

    def provider_for(self, model: Model) -> Any:
        known = {"refiner": self.refiner, "small": self.greeter}
        return known.get(model.name) or provider_for(model)

    @contextlib.contextmanager
    def opened(self) -> Iterator[RunContext]:
        yield RunContext(self.provider_for, CellGrader.of)

    def bench(self) -> TrialRunner:
        loaded = load_project(self.folder.path)
        target = target_of(loaded, loaded.experiments["hello"])
        return TrialRunner(target, self.opened, Allowance.of(target, self.budget_microusd))

    def refine(self, **orders: Any) -> RefineResult:
        bench = self.bench()
        model = bench.target.project.models["refiner"]
        return refine(bench, refiner_of(model), RefineOptions(on_step=self.steps.append, **orders))

    def optimize(self, **orders: Any) -> OptimizeResult:
        """Search for a better prompt; the refiner answers by `mended` unless it has replies."""
        target = self.bench().target
        reach = SearchLimits(
            orders.pop("population", 4), orders.pop("generations", 3), orders.pop("target", None)
        )
        given = SearchOrders(
            reach, self.budget_microusd, on_step=self.steps.append, **orders,
            on_generation=self.generations.append,
        )  # fmt: skip

        def opened(cap: SpendingCap) -> contextlib.AbstractContextManager[RunContext]:
            return contextlib.nullcontext(RunContext(self.provider_for, CellGrader.of, loop=cap))

        refiner = refiner_of(target.project.models["refiner"])
        return optimize(target, refiner, opened, given)

    @property
    def questions(self) -> list[str]:
        """What the refiner was asked, as text."""
        return ["\n".join(m.content for m in request.messages) for request in self.refiner.asked]


SAID = ("expected{}x", "tag{}x", "meta{}x", "cluster{}x", "name{}x", "other{}x")
"""Words that every case carries, each with the case's own id."""


def mark_cases(folder: Folder) -> None:
    """Give each case words that no other has, wherever a case can have some."""
    rows = [json.loads(line) for line in folder.read("datasets/names.jsonl").splitlines()]
    for row in rows:
        name = row["id"]
        row |= {"expected": f"expected{name}x", "tags": [f"tag{name}x"]}
        row |= {"metadata": {"source": f"meta{name}x"}, "cluster": f"cluster{name}x"}
        row["input"] |= {"name": f"name{name}x", "other": {"deep": f"other{name}x"}}
    folder.write("datasets/names.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows))


def refined_over_http(folder: Folder, server: LoopbackServer) -> None:
    """Let a server play the refiner, so that a test sees what it is sent."""
    folder.write(
        "models.yaml",
        "small: {provider: sim, model: small}\n"
        f"refiner: {{provider: openai_compatible, model: r, base_url: '{server.openai_url}', "
        "price: free}\n",
    )


def cases_shown(folder: Folder, bodies: list[str]) -> set[str]:
    """Return the training cases that were sent; fails if anything of a held-out one was."""
    loaded = load_project(folder.path)
    experiment = loaded.experiments["hello"]
    holdout = holdout_of(loaded, experiment)
    shown: set[str] = set()
    held = 0
    for case in loaded.cases(experiment):
        words = [word.format(case.id) for word in SAID] + [f'\\"{case.id}\\"']
        found = [word for word in words if any(word in body for body in bodies)]
        if holdout.has(case):
            held += 1
            assert found == []
        elif found:
            shown.add(case.id)
    assert held >= 16
    return shown
