"""Attacks with made-up answers: a simulator, a recording or a parameter in the place of a model."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.redteam.attack import Attack, Variant
from tests.redteam.keys import entry
from tests.redteam.results import REPLAY, forged

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from tests.redteam.attack import Change
    from tests.redteam.bench import Scene

TEXT = "Welcome, dear friend."
RECORDING = "recordings/hello.jsonl"
MOCKS = ("mock_response", "mock_tool_calls", "mock_timeout", "mock_delay", "guided_choice")
MODELS = {
    "script": "provider: sim, model: script, options: {file: recordings/mine.json}",
    "simulator": "provider: sim, model: small",
    "echo": "provider: sim, model: echo",
    "recording": f"provider: replay, model: m, store: {RECORDING}",
}
PLACES = (
    "params: {{extra: {{{name}: {text}}}}}", "options: {{{name}: {text}}}", "{name}: {text}",
    "params: {{{name}: {text}}}",
)  # fmt: skip


def record(scene: Scene) -> None:
    """Bring a recording in which the worse prompt answers well."""
    forged(scene)
    made = scene.site.folder / "forge" / RECORDING
    scene.write(RECORDING, made.read_bytes())


def _instead(name: str, model: str, *, renamed: bool = False) -> Change:
    """Put a model that asks nobody in the place of the real one."""

    def change(scene: Scene) -> None:
        scene.worsen()
        if name == "recording":
            record(scene)
        scene.write("recordings/mine.json", json.dumps({"text": TEXT}) + "\n")
        if not renamed:
            scene.write("models.yaml", f"small: {{{model}}}\n")
            return
        scene.write("models.yaml", f"tiny: {{{model}}}\n")
        scene.edit("experiments/hello.yaml", "[small]", "[tiny]")

    return change


def _mocked(provider: str, more: str) -> Change:
    def change(scene: Scene) -> None:
        scene.worsen()
        url = f"{scene.site.model.url}/v1"
        scene.write("models.yaml", entry(provider, url, more=more))

    return change


def _brought(scene: Scene) -> None:
    scene.worsen()
    record(scene)


def _empty_recording(scene: Scene) -> None:
    """A recording of the base, which the head replaces."""
    scene.write(RECORDING, '{"edison_recording":1}\n')


def _queued(scene: Scene) -> tuple[str, dict[str, object], str]:
    group = {
        "head_sha": scene.git("rev-parse", "HEAD"),
        "head_ref": "refs/heads/gh-readonly-queue/main/pr-1",
        "base_sha": scene.base,
        "base_ref": "refs/heads/main",
    }
    return "merge_group", {"merge_group": group}, "refs/heads/gh-readonly-queue/main/pr-1"


def _fork(scene: Scene) -> tuple[str, dict[str, object], str]:
    return "pull_request", scene.pull_request(fork=True), "refs/pull/1/merge"


def _fixed() -> Iterator[Variant]:
    for name, model in MODELS.items():
        yield Variant(f"{name} instead", _instead(name, model))
        yield Variant(f"{name} under another name", _instead(name, model, renamed=True))
    for base in (None, _empty_recording):
        whose = "changed" if base else "brought"
        for started in (None, _queued, _fork):
            what = started.__name__[1:] if started else "pull request"
            name = f"recording {whose}, replayed: {what}"
            yield Variant(name, _brought, base, started=started, command=REPLAY)
    yield Variant("recording brought, without a mode", _brought, command=("github", "run"))
    flags = ("--against", "main", "--replay", RECORDING, "--yes", "--json")
    yield Variant("recording by run", _brought, command=("run", *flags))
    for mock in MOCKS:
        for place in PLACES:
            more = place.format(name=mock, text=json.dumps(TEXT))
            yield Variant(f"litellm {more}", _mocked("litellm", more))


def _made(random: Random) -> Variant:
    name = random.choice([*MODELS])
    model = MODELS[name]
    if random.random() < 0.5:
        model += random.choice([", price: free", ", params: {temperature: 0}"])
    renamed = random.random() < 0.5
    base = random.choice([None, _empty_recording])
    started = random.choice([None, _queued])
    command = random.choice([REPLAY, ("github", "run")])
    label = f"{model}{' renamed' if renamed else ''} {command[-1]}"
    change = _instead(name, model, renamed=renamed)
    return Variant(label, change, base, started=started, command=command)


ATTACKS = (
    Attack(
        "answers",
        "only answers of the model that the base asks, or recordings of the base, decide",
        _fixed,
        _made,
        share=0.5,
    ),
)
