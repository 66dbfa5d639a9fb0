"""Models that can be reached here and may be proposed: of models.yaml, of vendors, and local ones.

A model is reachable if its key is set or sealed, its library is installed, or it needs
neither. What costs more than a cent per 1,000 tokens is not proposed.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.api import model_edits
from edison_ci.config import model_entry, prices, requirements, vendors
from edison_ci.errors import UsageError
from edison_ci.numeric import significant

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from edison_ci.config.load import Project
    from edison_ci.config.models import Model
    from edison_ci.config.prices import Price

MOST_USD_PER_1K = 0.01
FEWEST = {"generate": 2, "judge": 1}
"""How many models a proposal needs, by what they do."""
_MOST_OF_A_VENDOR = 12
_SIMULATED = {"small": "generate", "large": "generate", "judge": "judge"}
"""What the models of the simulator can do; the others draft, refine or repeat."""
_SPECIAL = re.compile(
    r"\d{4}|\b(?:audio|codex|deep-research|guard|latest|live|moderation|preview|realtime|"
    r"search|vision)\b"
)
"""Names of dated, unfinished or special models."""


class ModelCandidate(NamedTuple):
    """A model that may be proposed."""

    id: str
    """Its name in models.yaml, or VENDOR/MODEL."""
    model: Model
    usd_per_1k: float
    """Dollars per 1,000 tokens, the mean of input and output."""
    listed: bool = True
    """Whether models.yaml has it."""

    @property
    def name(self) -> str:
        """Its name in models.yaml, also if it has to be added first."""
        return self.id if self.listed else model_edits.name_of_model(self.id)

    @property
    def price(self) -> str:
        """The price as a text."""
        if self.model.simulated:
            return "simulated, free"
        return f"${significant(self.usd_per_1k, 3)} per 1K tokens" if self.usd_per_1k else "free"


@dataclass(frozen=True, slots=True)
class ReachableModels:
    """The models that may be proposed, cheapest first, and those that may not."""

    candidates: tuple[ModelCandidate, ...]
    too_expensive: tuple[str, ...] = ()
    without_price: tuple[str, ...] = ()
    without_key: tuple[str, ...] = ()

    def find(self, name: str) -> ModelCandidate | None:
        """Return a candidate by its name."""
        return next((candidate for candidate in self.candidates if candidate.id == name), None)

    @property
    def listing(self) -> str:
        """The candidates as they are shown to a model, one in each line."""
        return "\n".join(f"{candidate.id}: {candidate.price}" for candidate in self.candidates)

    def notes(self) -> Iterator[str]:
        """Yield what was left out, and why."""
        limit = f"above ${MOST_USD_PER_1K:g} per 1K tokens"
        for names, why in (
            (self.too_expensive, limit),
            (self.without_price, "price unknown"),
            (self.without_key, "key not set"),
        ):
            if names:
                more = f" and {len(names) - 3} more" if len(names) > 3 else ""
                yield f"not proposed, {why}: {', '.join(names[:3])}{more}"

    def left_out(self) -> dict[str, list[str]]:
        """Return the names of what was left out, by the reason."""
        return {
            "too_expensive": [*self.too_expensive],
            "without_price": [*self.without_price],
            "without_key": [*self.without_key],
        }


def reachable_models(
    project: Project,
    what: str,
    *,
    without: Iterable[str] = (),
    environ: Mapping[str, str] = os.environ,
) -> ReachableModels:
    """Return the models that can be reached to `generate` or to `judge`."""
    refused = {*without}
    expensive: list[str] = []
    unpriced: list[str] = []
    keyless: list[str] = []
    candidates: list[ModelCandidate] = []
    for model in project.models.values():
        if model.name in refused or not _can(model, what):
            continue
        if not all(project.has_key(name, environ) for name in model.variables):
            keyless.append(model.name)
            continue
        price = project.prices.price_of(model)
        if price is None:
            unpriced.append(model.name)
        elif _per_1k(price) > MOST_USD_PER_1K:
            expensive.append(model.name)
        else:
            candidates.append(ModelCandidate(model.name, model, _per_1k(price)))
    listed_keys = {prices.key_of(model) for model in project.models.values()}
    taken = {*project.models}
    for candidate in _unlisted(project, what, environ):
        if prices.key_of(candidate.model) in listed_keys or candidate.name in taken:
            continue
        if candidate.usd_per_1k > MOST_USD_PER_1K:
            expensive.append(candidate.id)
        else:
            candidates.append(candidate)
            taken.add(candidate.name)
    left_out = (tuple(expensive), tuple(unpriced), tuple(keyless))
    return ReachableModels(tuple(_alike(candidates, FEWEST[what])), *left_out)


def _alike(candidates: list[ModelCandidate], fewest: int) -> list[ModelCandidate]:
    """Return real models if there are enough, else simulated ones: the two are not compared."""
    real = [candidate for candidate in candidates if not candidate.model.simulated]
    simulated = [candidate for candidate in candidates if candidate.model.simulated]
    chosen = real if len(real) >= fewest or len(simulated) < fewest else simulated
    # Of the simulated models `large` is the better one, which is in no price.
    return sorted(
        chosen,
        key=lambda candidate: (
            candidate.usd_per_1k,
            candidate.model.model == "large",
            candidate.id,
        ),
    )


def _can(model: Model, what: str) -> bool:
    if model.simulated:
        return _SIMULATED.get(model.model) == what
    if model.capabilities.embedding or model.moderates or model.provider == "replay":
        return False
    if model.provider in model_entry.APPLICATIONS and what != "generate":
        return False
    return not [*requirements.missing_for_models([model])]


def _per_1k(price: Price) -> float:
    return (price.tokens_in + price.tokens_out) / 2_000


def _unlisted(project: Project, what: str, environ: Mapping[str, str]) -> Iterator[ModelCandidate]:
    """Yield the models of vendors whose key is set, and the local one if it is installed.

    The local one is too small to judge.
    """
    for name, vendor in vendors.VENDORS.items():
        if not vendor.key_env or vendor.options or not project.has_key(vendor.key_env, environ):
            continue
        service = model_edits.vendor_model(name)
        address = service.service or ""
        if project.trust.allows(vendor.key_env, address, service.provider):
            yield from _of_vendor(project, name, service)
    local = replace(
        model_edits.vendor_model("ollama"),
        name=model_edits.LOCAL,
        provider=model_edits.LOCAL,
        model=model_entry.LOCAL_MODEL,
    )
    local = replace(local, base_url=None, options={})
    if what == "generate" and not [*requirements.missing_for_models([local])]:
        yield ModelCandidate(
            f"{model_edits.LOCAL}/{model_entry.LOCAL_MODEL}", local, 0.0, listed=False
        )


def _of_vendor(project: Project, vendor: str, service: Model) -> list[ModelCandidate]:
    """Return models of a vendor over the whole range of its prices, cheapest first."""
    prefix = prices.key_of(replace(service, model=""))
    candidates = []
    for key, row in project.prices.models.items():
        name = key.removeprefix(prefix)
        chats = row.get("mode", "chat") in ("chat", "responses")
        if not key.startswith(prefix) or not chats or row.get("retires"):
            continue
        if _SPECIAL.search(name) is None:
            model = replace(service, model=name)
            price = _per_1k(prices.price_of_row(row))
            candidates.append(ModelCandidate(f"{vendor}/{name}", model, price, listed=False))
    candidates.sort(key=lambda candidate: (candidate.usd_per_1k, candidate.id))
    step = max(1, -(-len(candidates) // _MOST_OF_A_VENDOR))
    return candidates[::step] if len(candidates) > _MOST_OF_A_VENDOR else candidates


def with_models(project: Project, chosen: Sequence[ModelCandidate]) -> dict[str, str]:
    """Return the files that change if models.yaml gets the models that it lacks."""
    changed: dict[str, str] = {}
    for candidate in chosen:
        if not candidate.listed:
            changed |= model_edits.prepare_model(
                project, model_edits.ModelRequest(candidate.id), changed
            ).files
    return changed


def need(reachable: ReachableModels, fewest: int, what: str) -> None:
    """Raise UsageError if too few models can be reached."""
    if len(reachable.candidates) < fewest:
        counts = "; ".join([f"{len(reachable.candidates)} of {fewest} {what}", *reachable.notes()])
        raise UsageError(
            f"too few models can be reached: {counts}",
            hint="set a key, such as OPENAI_API_KEY, or: edison models add VENDOR/MODEL",
        )
