"""What does the simulated refiner reply?

It reads what a real refiner would read: a prompt file, in a block `prompt` named by its path or in
a code fence, and the criteria it is weak in, as JSON after `Criteria:` or by their names. Failing
examples may stand beside them. It replies with a note and a unified diff of that one file: as JSON
`{"note", "diff"}` where the material is in blocks or JSON is asked for, else in words and a fence.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.providers.sim.blocks import blocks_in
from edison_ci.providers.sim.diffs import Change, bad_diff, bad_kind, unified_diff
from edison_ci.providers.sim.hearing import criteria_in
from edison_ci.providers.sim.judge import Criterion
from edison_ci.providers.sim.knowledge import MAX_CHARS
from edison_ci.providers.sim.options import SimOptions
from edison_ci.providers.sim.pace import Pace
from edison_ci.providers.sim.refiner import helped, improved
from edison_ci.providers.sim.seeds import stream
from edison_ci.providers.sim.speaking import spoken

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from edison_ci.records import Completion, Request

PACE = Pace(400.0, 12.0)
_FENCED = re.compile(r"^(```+|~~~+)[^\n]*\n(.*?)^\1\s*$", re.M | re.S)
_LOOKS_LIKE_A_PROMPT = re.compile(r"\A---\n|^# (?:system|user)\s*$|\{\{.{1,200}\}\}", re.M)
_PATH = re.compile(r"\b(?:[\w.-]+/)+[\w.-]+\.md\b")
_ID = re.compile(r"\A---\n(?:[^\n]*\n)*?id:\s*([\w.-]+)\s*$", re.M)
_JSON = re.compile(r"\bjson\b", re.I)


class Task(NamedTuple):
    """What a refiner is asked to do."""

    path: str
    text: str
    weak: tuple[Criterion, ...]
    as_json: bool


def refine(request: Request, options: SimOptions | None = None) -> Completion:
    """Return a proposal, decided by the request's address and the seed."""
    options = options or SimOptions()
    rng = stream(request.address, options.seed, "refine")
    task = task_in(request)
    proposal = improved(task.text, task.weak, rng)
    diff = unified_diff(task.text, proposal.text, task.path)
    bad = bad_kind(rng, options.bad_diff_rate)
    if bad is not None:
        diff = bad_diff(bad, Change(task.path, task.text, proposal.text), rng)
    reply = f"{proposal.note}\n\n```diff\n{diff}```"
    if task.as_json:
        reply = json.dumps({"note": proposal.note, "diff": diff}, ensure_ascii=False)
    return spoken(request, options, reply, PACE, rng)


def task_in(request: Request) -> Task:
    """Return the prompt that is to be refined, and in what it is weak."""
    said = next((m.content for m in reversed(request.messages) if m.role == "user"), "")
    told = "\n".join(m.content for m in request.messages if m.role == "system")
    said, told = said[:MAX_CHARS], told[:MAX_CHARS]
    blocks = blocks_in(said)
    shown = next((block for block in blocks or () if block.tag == "prompt"), None)
    text = shown.text if shown is not None else _prompt_in(said)
    rest = said.replace(text, "\n") if text != said else ""
    name = shown.name if shown is not None else ""
    path = name if _PATH.fullmatch(name) else _path(f"{told}\n{rest}", text)
    weak = [*criteria_in(told), *criteria_in(rest)] or [*_named(f"{told}\n{rest}", text)]
    asked = blocks is not None or request.response_format is not None
    return Task(path, text, tuple(weak), asked or bool(_JSON.search(f"{told}\n{rest}")))


def _prompt_in(said: str) -> str:
    """Return the text in a fence that looks most like a prompt; without fences all of it."""
    fenced = [found[2] for found in _FENCED.finditer(said)]
    likely = [text for text in fenced if _LOOKS_LIKE_A_PROMPT.search(text)]
    return (likely or fenced or [said])[0]


def _path(around: str, text: str) -> str:
    found = _PATH.search(around)
    if found is not None:
        return found[0]
    name = _ID.match(text)
    return f"prompts/{name[1] if name else 'prompt'}.md"


def _named(around: str, text: str) -> Iterator[Criterion]:
    """Yield the criteria of the prompt's task that a message names, in its order."""
    lowered = around.lower()
    places: Sequence[tuple[int, str]] = sorted(
        (place, name) for name in helped(text) if (place := lowered.find(name)) >= 0
    )
    for _, name in places:
        yield Criterion(name.capitalize())
