"""Do better instructions gain, aimless edits not, and does nothing pass 97 points offline?

python -m benchmarks.sim [--repeats N] [--edits N]
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import yaml

from edison_ci.features.simulator.assignment import AnswerSample
from edison_ci.features.simulator.judge import Criterion, score, task_of_inputs
from edison_ci.features.simulator.options import SimOptions, random_stream
from edison_ci.features.simulator.provider import generate
from edison_ci.features.simulator.refiner import improve, parse_prompt
from edison_ci.features.simulator.tasks import task_data
from edison_ci.records import Message, Request
from edison_ci.templating.templates import Template, as_text, compile_template

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from random import Random

    from edison_ci.records import Role

EXAMPLES = Path(__file__).parent.parent / "examples"
NAMES = ("customer-support", "creative-writing", "data-extraction", "code-generation")
ROUNDS = 6
LEAST_GAIN, DRIFT, TOP = 15.0, 2.0, 97.0
SHIPPED_PASS = (38.0, 62.0)
"""The examples gate the pass rate at 30%: met with a margin, and with room to improve."""
_SECTION = re.compile(r"^# (system|user|assistant)[ \t]*$", re.M)


@dataclass(frozen=True)
class Case:
    """One row of a dataset."""

    id: str
    inputs: dict[str, Any]
    expected: Any

    @property
    def variables(self) -> dict[str, Any]:
        return {**self.inputs, "expected": self.expected}


@dataclass(frozen=True)
class Example:
    """An example project, read by plain means."""

    name: str
    prompt: str
    cases: list[Case]
    criteria: list[tuple[Criterion, float]]
    checks: list[dict[str, Any]]
    schema: str
    """JSON text."""


@dataclass(frozen=True)
class Graded:
    """What one answer was worth."""

    composite: float
    passes: bool
    scores: Mapping[str, float]


@dataclass(frozen=True)
class Figures:
    """What a prompt was worth over all cases."""

    points: float
    pass_rate: float
    criteria: Mapping[str, float]

    def weakest(self, example: Example, count: int = 2) -> list[Criterion]:
        criteria = [criterion for criterion, _ in example.criteria]
        return sorted(criteria, key=lambda criterion: self.criteria[criterion.name])[:count]


# --- reading -------------------------------------------------------------------------------------


def load(name: str) -> Example:
    folder = EXAMPLES / name
    (experiment,) = folder.glob("experiments/*.yaml")
    (rubric,) = folder.glob("rubrics/*.yaml")
    (prompt,) = folder.glob("prompts/*.md")
    schemas = [path.read_text() for path in folder.glob("prompts/*.json")]
    rows = [
        json.loads(line)
        for kind in ("golden", "adversarial")
        for line in (folder / f"datasets/{kind}.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    criteria = yaml.safe_load(rubric.read_text(encoding="utf-8"))["criteria"]
    return Example(
        name,
        prompt.read_text(encoding="utf-8"),
        [Case(row["id"], row["input"], row.get("expected")) for row in rows],
        [(Criterion(c["name"], c["description"]), float(c["weight"])) for c in criteria],
        yaml.safe_load(experiment.read_text(encoding="utf-8"))["checks"],
        schemas[0] if schemas else "{}",
    )


@cache
def template(source: str) -> Template:
    return compile_template(source)


@cache
def validator(schema: str) -> jsonschema.Draft7Validator:
    return jsonschema.Draft7Validator(json.loads(schema))


def messages_of(prompt: str, case: Case) -> tuple[Message, ...]:
    body = prompt.split("\n---\n", 1)[1]
    parts = _SECTION.split(body)[1:]
    roles: list[Role] = ["system", "user"]
    assert parts[::2] == roles
    return tuple(
        Message(role, template(text.strip("\n")).render(case.inputs))
        for role, text in zip(roles, parts[1::2], strict=True)
    )


# --- grading -------------------------------------------------------------------------------------


def check_score(entry: dict[str, Any], case: Case, output: str, schema: str) -> float:
    """Evaluate the few checks that the examples use."""
    ((name, argument),) = entry.items()
    if name == "not":
        return 1.0 - check_score(argument, case, output, schema)
    value = argument.get("value") if isinstance(argument, dict) else argument
    given = template(value).value(case.variables) if isinstance(value, str) else value
    if name == "words":
        low, high = argument.get("min", 0), argument.get("max", 10**9)
        return float(low <= len(output.split()) <= high)
    if name == "contains":
        return float(str(given) in output)
    if name == "icontains":
        return float(str(given).casefold() in output.casefold())
    if name == "contains_all":
        return float(isinstance(given, list) and all(str(word) in output for word in given))
    if name == "regex":
        return float(re.search(str(given), output) is not None)
    return _json_score(name, argument, given, parsed(output), schema)


def _json_score(name: str, argument: Any, given: Any, value: Any, schema: str) -> float:
    if value is None:
        return 0.0
    if name == "is_json":
        return 1.0
    if name == "json_schema":
        return float(validator(schema).is_valid(value))
    if name == "json_path":
        key = argument["path"].removeprefix("$.")
        return float(isinstance(value, dict) and key in value and as_text(value[key]) == given)
    raise NotImplementedError(name)


def parsed(output: str) -> Any:
    try:
        return json.loads(output)
    except ValueError:
        return None


def grade(example: Example, case: Case, output: str, seed: object) -> Graded:
    """Return the composite and the pass of one answer (SPEC section 6)."""
    criteria = [criterion for criterion, _ in example.criteria]
    exhibit = AnswerSample(task_of_inputs(case.inputs), case.inputs, output)
    scores = score(
        exhibit, criteria, random_stream("judge", seed, output), noise=SimOptions().noise
    )
    shares = {name: value.score / 5 for name, value in scores.items()}
    if re.search("json", example.prompt, re.I) and parsed(output) is None:
        return Graded(0.0, False, dict.fromkeys(shares, 0.0))  # MALFORMED
    total = sum(weight * shares[criterion.name] for criterion, weight in example.criteria)
    weights, passes = 1.0, True
    for entry in example.checks:
        value = check_score(entry, case, output, example.schema)
        ((_, argument),) = entry.items()
        weight = float(argument.get("weight", 0)) if isinstance(argument, dict) else 0.0
        total, weights, passes = total + weight * value, weights + weight, passes and value >= 1
    return Graded(total / weights, passes, shares)


def figures(
    example: Example, prompt: str, *, model: str = "small", repeats: Iterable[int] = (0,)
) -> Figures:
    """Return what a prompt is worth over all cases and these repeats."""
    params = {"temperature": 1.0, "max_tokens": 4096}
    graded = []
    for case in example.cases:
        messages = messages_of(prompt, case)
        for repeat in repeats:
            request = Request("sim", "", model, messages, params, repeat=repeat)
            graded.append(grade(example, case, generate(request).text, request.request_hash))
    return Figures(
        100 * statistics.fmean(g.composite for g in graded),
        100 * statistics.fmean(g.passes for g in graded),
        {c.name: statistics.fmean(g.scores[c.name] for g in graded) for c, _ in example.criteria},
    )


# --- what is shown -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """The figures of one template."""

    name: str
    shipped: Figures
    first: Figures
    refined: Figures
    drift: float
    best: Figures
    large: Figures

    @property
    def gain(self) -> float:
        return self.refined.points - self.shipped.points

    @property
    def faults(self) -> list[str]:
        low, high = SHIPPED_PASS
        promises = (
            (self.gain >= LEAST_GAIN, f"the refiner gains only {self.gain:.1f}"),
            (abs(self.drift) <= DRIFT, f"random edits gain {self.drift:+.1f}"),
            (self.best.points <= TOP, f"{self.best.points:.1f} points are reachable"),
            (low <= self.shipped.pass_rate <= high, f"{self.shipped.pass_rate:.0f}% pass"),
            (self.refined.pass_rate > self.shipped.pass_rate + 15, "few more cases pass refined"),
            (self.large.points > self.shipped.points + 1, "large is not better than small"),
        )
        return [f"{self.name}: {said}" for kept, said in promises if not kept]


def refined_prompts(example: Example, repeats: Iterable[int]) -> list[tuple[str, Figures]]:
    """Return the prompt after each round in which the refiner's diff was an improvement."""
    kept = [(example.prompt, figures(example, example.prompt, repeats=repeats))]
    failed = 0
    for number in range(ROUNDS):
        prompt, now = kept[-1]
        rng = random_stream(example.name, number)
        proposal = improve(prompt, now.weakest(example), rng, rank=failed)
        then = figures(example, proposal.text, repeats=repeats)
        failed += 1
        if then.points > now.points:
            kept.append((proposal.text, then))
            failed = 0
    return kept


def every_instruction(example: Example) -> str:
    """Return the prompt with all instructions that matter, however long it gets."""
    task = task_of_inputs(example.cases[0].inputs)
    lines = "\n".join(f"- {feature.lines[0]}" for feature in task_data(task).features)
    head, _, tail = example.prompt.partition("# user\n")
    first, _, rest = tail.partition("\n")
    return f"{head}# user\n{lines}\n{first}\n{rest}"


# The control of the measurements: edits that ought to change nothing.
_NEUTRAL = (
    "Take the time you need.",
    "Think before you start.",
    "This is part of our daily work.",
    "Thank you for your help.",
    "Do this as well as you can.",
    "We look forward to the result.",
    "You will find everything below.",
    "Have a look at the following.",
    "Begin whenever you are ready.",
    "What you need is given here.",
)
_SWAPS = (
    ("Write", "Compose"),
    ("write", "draft"),
    ("this", "the following"),
    ("You are", "You work as"),
    ("answer", "reply to"),
    ("Answer", "Reply"),
    ("Extract", "Read out"),
    ("an online shop", "a shop on the web"),
)


def random_edit(prompt_text: str, rng: Random) -> str:
    """Return the prompt after one random edit of an instruction."""
    prompt = parse_prompt(prompt_text)
    places = prompt.instruction_lines
    if not places:
        return prompt_text
    lines = [*prompt.lines]
    index = rng.choice(places)
    kind = rng.randrange(5)
    if kind == 1:
        lines[index] = _replace_word(lines[index])
    elif kind == 2:
        lines[index] = _swap_words(lines[index], rng)
    elif kind == 3:
        lines[index] = _drop_word(lines[index], rng)
    elif kind == 4:
        lines[index] = f"{rng.choice(_NEUTRAL)} {lines[index]}"
    if lines == [*prompt.lines]:
        lines.insert(index + 1, rng.choice(_NEUTRAL))
    return prompt.with_lines(lines)


def _replace_word(line: str) -> str:
    for old, new in _SWAPS:
        if old in line:
            return line.replace(old, new, 1)
    return f"{line} Thank you."


def _swap_words(line: str, rng: Random) -> str:
    """Return a line with two neighbouring words exchanged."""
    words = line.split(" ")
    if len(words) < 3:
        return line
    place = rng.randrange(len(words) - 1)
    words[place], words[place + 1] = words[place + 1], words[place]
    return " ".join(words)


def _drop_word(line: str, rng: Random) -> str:
    """Return a line without one of its words."""
    words = line.split(" ")
    if len(words) < 4:
        return line
    del words[rng.randrange(len(words))]
    return " ".join(words)


def drift(example: Example, base: float, edits: int) -> float:
    """Return the mean gain of aimless edits."""
    texts = [random_edit(example.prompt, random_stream("edit", seed)) for seed in range(edits)]
    points = [figures(example, text, repeats=(seed,)).points for seed, text in enumerate(texts)]
    return statistics.fmean(points) - base


def measured(name: str, *, repeats: int, edits: int) -> Row:
    example = load(name)
    several = range(repeats)
    kept = refined_prompts(example, several)
    base = figures(example, example.prompt, repeats=range(edits))
    best = figures(example, every_instruction(example), model="large", repeats=several)
    return Row(
        name,
        kept[0][1],
        kept[min(1, len(kept) - 1)][1],
        kept[-1][1],
        drift(example, base.points, edits),
        best,
        figures(example, example.prompt, model="large", repeats=several),
    )


def table(rows: list[Row]) -> str:
    head = (
        "template          shipped  1 diff  refined   gain   random edits   best  large"
        "   pass: shipped refined   best"
    )
    lines = [
        f"{r.name:<17}{r.shipped.points:8.1f}{r.first.points:8.1f}{r.refined.points:9.1f}"
        f"{r.gain:+7.1f}{r.drift:+15.1f}{r.best.points:7.1f}{r.large.points:7.1f}"
        f"{r.shipped.pass_rate:15.0f}%{r.refined.pass_rate:7.0f}%{r.best.pass_rate:6.0f}%"
        for r in rows
    ]
    return "\n".join([head, *lines])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--edits", type=int, default=20)
    options = parser.parse_args()
    rows = [measured(name, repeats=options.repeats, edits=options.edits) for name in NAMES]
    print(table(rows))
    faults = [fault for row in rows for fault in row.faults]
    print("\n".join(faults) or "All figures are as promised.")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
