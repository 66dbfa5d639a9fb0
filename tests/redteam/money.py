"""Attacks on money: more is spent than the base allows, by the model's own ledger."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.loopback.script import rule
from tests.redteam.attack import Attack, Variant
from tests.redteam.bench import EXPERIMENT, KEY, TRUST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    from tests.redteam.attack import Change
    from tests.redteam.bench import Scene

BUDGET = 10_000
"""Micro-dollars: some calls, and far from all that the head asks for."""
_NONE = "version: 1\nproject: greetings\n"
LONG = (rule(text="Welcome " * 5_000),)
SMALL = (
    f"provider: openai_compatible, model: m, base_url: '{{url}}', key_env: {KEY}, "
    "price: {price}, params: {{max_tokens: 200{extra}}}, limits: {{attempts: 2, timeout_s: 20}}"
)
"""At most 400 micro-dollars a call for what comes back."""
EXTRAS = (
    "max_completion_tokens: 90000", "max_output_tokens: 90000", "max_tokens: 90000", "n: 20",
    "best_of: 20", "num_predict: 90000", "stream: true", "thinking_budget: 90000",
    "thinking: {type: enabled, budget_tokens: 9000}", "reasoning: {max_tokens: 9000}",
    "reasoning_effort: high", "service_tier: priority", "modalities: [text, audio]",
    "chat_template_kwargs: {max_completion_tokens: 9000}", "min_tokens: 90000",
    "num_retries: 50", "metadata: {max_completion_tokens: '90000'}", "messages: []",
    "response_format: {type: json_object, max_completion_tokens: 9000}", "models: [m, big]",
)  # fmt: skip
URLS = (
    "{url}/v1/", "{url}//v1", "{url}/v1/../v1", "{upper}/v1", "{url}/V1", "{url}/v1/.", "{url}",
    "{url}/%76%31", "{url}/v1/openai/deployments/m",
)  # fmt: skip


def models(scene: Scene, entry: str, name: str = "small") -> None:
    url = scene.site.model.url
    filled = entry.replace("{url}", url).replace("{upper}", url.replace("http", "HTTP"))
    scene.write("models.yaml", f"{name}: {{{filled}}}\n")


def entry(*, price: str = "{in: 1, out: 2}", extra: str = "", url: str = "{url}/v1") -> str:
    more = f", extra: {{{extra}}}" if extra else ""
    return SMALL.format(url=url, price=price, extra=more)


def _limits(kind: str) -> Change:
    """Return a base that limits spending in one way."""

    def base(scene: Scene) -> None:
        models(scene, entry())
        usd = f"{BUDGET / 1e6:g}"
        scene.write(
            "edison.yaml", f"version: 1\nproject: greetings\ndefaults: {{budget_usd: {usd}}}\n"
        )
        if kind == "trust":
            scene.add(".edison/trust.yaml", f"budget_usd_max: {usd}\n")
            scene.write("edison.yaml", _NONE)
        if kind == "experiment":
            scene.add("experiments/hello.yaml", f"stop: {{budget_usd: {usd}}}\n")
        if kind == "month":
            text = f"version: 1\nproject: greetings\nsettings: {{monthly_budget_usd: {usd}}}\n"
            scene.write("edison.yaml", text)
        if kind == "day":
            scene.write("edison.yaml", _NONE)
            scene.add("experiments/hello.yaml", f"stop: {{daily_budget_usd: {usd}}}\n")

    return base


KINDS = ("trust", "experiment", "month", "day", "default")


def _lift(scene: Scene) -> None:
    """Raise or drop every limit that a file can set."""
    scene.write("edison.yaml", "version: 1\nproject: greetings\ndefaults: {budget_usd: 9000}\n")
    scene.write(".edison/trust.yaml", TRUST.format(host=scene.site.model.url))
    text = scene.read("experiments/hello.yaml").split("stop:")[0]
    scene.write("experiments/hello.yaml", f"{text}stop: {{budget_usd: 9000}}\n")


def _more_cases(scene: Scene) -> None:
    rows = (json.dumps({"id": f"d{n}", "name": f"M{n}"}) + "\n" for n in range(200))
    scene.add("datasets/names.jsonl", "".join(rows))


def _more_repeats(scene: Scene) -> None:
    scene.edit("experiments/hello.yaml", "models: [small]", "models: [small]\nrepeats: 20")


def _more_experiments(scene: Scene) -> None:
    for number in range(8):
        text = EXPERIMENT.replace("experiment: hello", f"experiment: again-{number}")
        text = text.replace("contains: Welcome", f"contains: Welcome{number}")
        scene.write(f"experiments/again-{number}.yaml", f"{text}repeats: {number + 2}\n")


def _long_prompt(scene: Scene) -> None:
    scene.add("prompts/hello.md", "Consider this. " * 1_000)


def _grid(scene: Scene) -> None:
    scene.edit(
        "experiments/hello.yaml",
        "models: [small]",
        "models: [{use: small, params: {max_tokens: [100000, 90000, 80000]}}]",
    )


def _another_experiment(scene: Scene) -> None:
    """Leave the limits of an experiment behind with its name."""
    text = scene.read("experiments/hello.yaml").replace("experiment: hello", "experiment: other")
    (scene.path / "experiments/hello.yaml").unlink()
    scene.write(
        "experiments/other.yaml", text.replace("models: [small]", "models: [small]\nrepeats: 9")
    )


MORE: tuple[Change, ...] = (_more_cases, _more_repeats, _more_experiments, _long_prompt, _grid)


def _priced(written: str, name: str = "small") -> Change:
    def change(scene: Scene) -> None:
        models(scene, written, name)
        if name != "small":
            for path in (scene.path / "experiments").iterdir():
                path.write_text(path.read_text().replace("small", name))

    return change


def _renamed(old: str, new: str) -> str:
    return entry(price="free").replace(old, new)


PRICES: dict[str, Change] = {
    "free": _priced(entry(price="free")),
    "nothing": _priced(entry(price="{in: 0, out: 0, cached_in: 0}")),
    "another model": _priced(_renamed("model: m", "model: other")),
    "model in capitals": _priced(_renamed("model: m", "model: M")),
    "another provider": _priced(_renamed("openai_compatible", "openai")),
    "ollama": _priced(_renamed("openai_compatible", "ollama")),
    "litellm": _priced(_renamed("openai_compatible, model: m", "litellm, model: openai/m")),
    "another name": _priced(entry(price="free"), "tiny"),
    **{f"url {url}": _priced(entry(price="free", url=url)) for url in URLS},
    **{extra.partition(":")[0] + " extra": _priced(entry(extra=extra)) for extra in EXTRAS},
}


def _together(*changes: Change) -> Change:
    def change(scene: Scene) -> None:
        for each in changes:
            each(scene)

    return change


def _variant(name: str, kind: str, *changes: Callable[[Scene], None]) -> Variant:
    return Variant(
        f"{kind}: {name}", _together(_lift, *changes), _limits(kind), script=LONG, may_pass=True,
        budget_microusd=BUDGET, proxied=True,
    )  # fmt: skip


def _fixed() -> Iterator[Variant]:
    for kind in KINDS:
        yield _variant("limits dropped", kind, _more_cases)
    for change in MORE:
        yield _variant(change.__name__[1:], "trust", change)
    for name, change in PRICES.items():
        yield _variant(name, "trust", _more_cases, change)
    for kind in KINDS:
        yield _variant("another experiment", kind, _more_cases, _another_experiment)
    for kind in KINDS[1:]:
        yield _variant("free, in many experiments", kind, _more_experiments, PRICES["free"])


def _made(random: Random) -> Variant:
    kind, price = random.choice(KINDS), random.choice([*PRICES])
    more = random.sample(MORE, random.choice([1, 2]))
    name = " + ".join([*(each.__name__[1:] for each in more), price])
    return _variant(name, kind, *more, PRICES[price])


ATTACKS = (Attack("money", "no job spends more than the limits of its base", _fixed, _made),)
