"""How well `expect: auto` tells a request for a form of answers from a mention of it.

    python -m benchmarks.expected_form

Prompts of tests/config/expected_forms, with the form that a reader says they ask for. The rules
were written with `tuning.jsonl` at hand. `held_out.jsonl` are 50 of the first 191 prompts, those
with the lowest hashes, set aside before the rules were written. What the rules get wrong there was
not read, but it was counted while they were mended: the figure is somewhat optimistic.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.config.prompt import read_prompt

if TYPE_CHECKING:
    from collections.abc import Iterator

SETS = Path(__file__).parent.parent / "tests" / "config" / "expected_forms"


class Labelled(NamedTuple):
    """A prompt and the form of answers that it asks for."""

    language: str
    form: str
    prompt: str


class Rates(NamedTuple):
    """How many forms are found, and how many are found where none is asked for."""

    asking: int
    found: int
    others: int
    alarms: int
    languages: int

    @property
    def recall(self) -> float:
        """Share of the prompts that ask for a form in which exactly that form is found."""
        return self.found / self.asking

    @property
    def false_alarms(self) -> float:
        """Share of the other prompts in which a form is found."""
        return self.alarms / self.others


def labelled(name: str) -> list[Labelled]:
    """Return the prompts of a set."""
    lines = (SETS / f"{name}.jsonl").read_text("utf-8").splitlines()
    return [Labelled(**json.loads(line)) for line in lines]


def form_of(text: str) -> str:
    """Return the form that is found in a prompt."""
    prompt, problems = read_prompt(text.encode(), "prompts/any.md")
    assert prompt is not None, problems
    return prompt.expect


def measure(prompts: list[Labelled]) -> Rates:
    """Return how well the forms of these prompts are found."""
    found = Counter[bool]()
    alarms = Counter[bool]()
    for each in prompts:
        right = form_of(each.prompt) == each.form
        (alarms if each.form == "none" else found)[right] += 1
    return Rates(
        found.total(),
        found[True],
        alarms.total(),
        alarms[False],
        len({each.language for each in prompts}),
    )


def rows() -> Iterator[str]:
    """Yield a table of the sets, in Markdown."""
    yield "| prompts | ask for a form | found | recall | others | false alarms |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for name, title in (("held_out", "set aside"), ("tuning", "at hand")):
        rates = measure(labelled(name))
        yield (
            f"| {title}, in {rates.languages} languages | {rates.asking} | {rates.found} "
            f"| {rates.recall:.0%} | {rates.others} | {rates.alarms} |"
        )


if __name__ == "__main__":
    sys.stdout.write("\n".join(rows()) + "\n")
