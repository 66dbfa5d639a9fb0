"""What can a local model of 135 million parameters do, and how fast? (answer, and not judge)

    python -m benchmarks.local [--write docs/benchmarks/local.md]

Measures the model smollm2-135m-instruct with one thread: loading, tokens per second and memory. As
a judge it gets forty clear pairs: a question of the example one-word-answers with its answer and a
wrong one, the right one first in every second pair. It must choose A or B. Then the whole of
`edison demo --real` is run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from scipy.stats import binomtest

from edison_ci.config.model_entry import LOCAL_MODEL
from edison_ci.config.models import RegistryReader
from edison_ci.documents.yaml_text import read_yaml
from edison_ci.providers.adapters import provider_for
from edison_ci.records import Completion, Message, Request

if TYPE_CHECKING:
    from edison_ci.contracts import Provider

ROOT = Path(__file__).parent.parent
QUESTIONS = ROOT / "examples" / "one-word-answers" / "datasets" / "questions.jsonl"
CHOICE = {
    "type": "object",
    "properties": {"better": {"enum": ["A", "B"]}},
    "required": ["better"],
    "additionalProperties": False,
}


class Pair(NamedTuple):
    """A question with a right and a wrong answer."""

    question: str
    right: str
    wrong: str


def pairs() -> list[Pair]:
    """Return the pairs: a wrong answer is the right one of the next question of its kind."""
    rows = [json.loads(line) for line in QUESTIONS.read_text("utf-8").splitlines()]
    found = []
    for index, row in enumerate(rows):
        others = [*rows[index + 1 :], *rows[:index]]
        same = [o for o in others if o["tags"] == row["tags"]] or others
        wrong = next(o["expected"] for o in same if o["expected"] != row["expected"])
        found.append(Pair(row["input"]["question"], row["expected"], wrong))
    return found


def asked(text: str, **more: Any) -> Request:
    """Return a request to the model."""
    params = {"temperature": 0, "max_tokens": 16, **more.pop("params", {})}
    messages = (Message("system", "You are a helpful assistant."), Message("user", text))
    return Request("local", "", LOCAL_MODEL, messages, params, **more)


def judged(pair: Pair, *, first: bool) -> Request:
    """Return the request that compares the answers of a pair."""
    a, b = (pair.right, pair.wrong) if first else (pair.wrong, pair.right)
    text = (
        f"Question: {pair.question}\nAnswer A: {a}\nAnswer B: {b}\n"
        'Which answer is right? Reply as JSON: {"better": "A"} or {"better": "B"}.'
    )
    return asked(text, response_format=CHOICE)


async def measured() -> list[str]:
    """Return the rows of the table, without the demo."""
    document = read_yaml(f"m: {{provider: local, model: {LOCAL_MODEL}}}\n", "models.yaml")
    model = RegistryReader(document).read()["m"]
    began = time.perf_counter()
    provider = provider_for(model)
    loaded = time.perf_counter() - began
    reading = asked("Write a story about a dog. " * 40, params={"max_tokens": 1})
    writing = asked("Write a long story about a dog.", params={"max_tokens": 200})
    read, wrote = await _timed(provider, reading), await _timed(provider, writing)
    verdicts = [await _verdict(provider, pair, at) for at, pair in enumerate(pairs())]
    right = sum(verdict == "AB"[at % 2] for at, verdict in enumerate(verdicts))
    exact = binomtest(right, len(verdicts)).proportion_ci(0.95)
    low, high = float(exact.low), float(exact.high)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return [
        f"| load | {loaded:.1f} s |",
        f"| prompt | {(read[0].tokens_in or 0) / read[1]:.0f} tokens a second of a core |",
        f"| answer | {(wrote[0].tokens_out or 0) / wrote[1]:.0f} tokens a second of a core |",
        f"| memory of the process at most | {peak:.0f} MB |",
        f"| as a judge of clear pairs | {right} of {len(verdicts)} right "
        f"({100 * low:.0f} to {100 * high:.0f}%), A chosen {verdicts.count('A')} times |",
    ]


async def _verdict(provider: Provider, pair: Pair, at: int) -> str:
    answer = await provider.complete(judged(pair, first=at % 2 == 0))
    return str(json.loads(answer.text)["better"])


async def _timed(provider: Provider, request: Request) -> tuple[Completion, float]:
    """Return an answer with its seconds on a core: other processes may have it in between."""
    began = time.process_time()
    answer = await provider.complete(request)
    return answer, time.process_time() - began


def demo() -> str:
    """Return how long `edison demo --real` takes."""
    began = time.perf_counter()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "edison_ci", "demo", "--real", "--quiet"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    took = time.perf_counter() - began
    return f"| `edison demo --real` | {took:.0f} s, {cpu:.0f} s of them on a core |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path, metavar="FILE")
    given = parser.parse_args()
    rows = [*asyncio.run(measured()), demo()]
    busy = os.getloadavg()[0]
    text = "\n".join(
        [
            "# A local model",
            "",
            "`python -m benchmarks.local --write docs/benchmarks/local.md`",
            "",
            f"{LOCAL_MODEL} with one thread, on {os.cpu_count()} cores with a load of {busy:.1f}.",
            "",
            "| what | measured |",
            "| --- | --- |",
            *rows,
            "",
        ]
    )
    print(text)
    if given.write:
        given.write.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
