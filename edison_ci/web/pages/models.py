"""The page of models: address, price, limits, key, last test and where each is used."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, NamedTuple

from edison_ci import utc
from edison_ci.contracts import WHAT_TO_CHECK
from edison_ci.numeric import counted, fixed
from edison_ci.results.spending import ModelTest, ModelUse, last_tests, uses_since
from edison_ci.web.page_context import PER_PAGE, Page, paged
from edison_ci.web.workspace import project_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edison_ci.config.load import Project
    from edison_ci.config.models import Model
    from edison_ci.config.prices import Price
    from edison_ci.web.page_context import PageContext

DAYS = 30
_MOST_USES = 5
"""Experiments that are named beside a model."""


class Key(NamedTuple):
    """A variable that holds a key; its value is never read for a page."""

    variable: str
    present: bool


class Use(NamedTuple):
    """What a model does in an experiment."""

    experiment: str
    roles: str


class ModelLine(NamedTuple):
    """A model of the project."""

    model: Model
    price: str
    price_source: str
    limits: tuple[str, ...]
    keys: tuple[Key, ...]
    retires: str | None
    test: ModelTest | None
    advice: str
    """What to check after a failed test."""
    uses: tuple[Use, ...]
    """In the first experiments that use it."""
    other_uses: int
    """Number of further experiments."""
    spent: ModelUse | None = None
    """In the last days."""


def models(context: PageContext) -> Page:
    """Return the models of the project; none if its files are not accessible."""
    project = project_of(context)
    since = utc.timestamp(context.now - dt.timedelta(days=DAYS - 1))[:10]
    text = context.args.text("q")
    all_models = [] if project is None else [*project.models.values()]
    matching = [model for model in all_models if text.casefold() in model.name.casefold()]
    models_page, lines = paged(context, matching, "models", q=text), []
    if project is not None:
        tests = last_tests(context.connection)
        spent = uses_since(context.connection, since)
        uses = _uses(project, frozenset(model.name for model in models_page.rows))
        lines = [
            _line(project, model, tests.get(model.name), uses.get(model.name, []))._replace(
                spent=spent.get(model.name)
            )
            for model in models_page.rows
        ]
    values = {"models": lines, "known": project is not None, "days": DAYS, "shown": models_page}
    values |= {
        "q": text,
        "any": bool(all_models),
        "filtered": bool(text) or len(all_models) > PER_PAGE,
    }
    return Page("models", "Models", values, area="models")


def _line(project: Project, model: Model, test: ModelTest | None, uses: list[Use]) -> ModelLine:
    return ModelLine(
        model=model,
        price=_price(project.prices.price_of(model)),
        price_source=_source(project, model),
        limits=tuple(_limits(model)),
        keys=tuple(Key(name, project.has_key(name)) for name in model.keys.values()),
        retires=project.prices.retires(model),
        test=test,
        advice="" if test is None or test.ok else WHAT_TO_CHECK.get(test.error, ""),
        uses=tuple(uses[:_MOST_USES]),
        other_uses=len(uses[_MOST_USES:]),
    )


def _price(price: Price | None) -> str:
    if price is None:
        return "unknown"
    if price.call:
        return f"${price.call:g} per call"
    if price.tokens_in == price.tokens_out == 0:
        return "free"
    return f"${price.tokens_in:g} in, ${price.tokens_out:g} out"


def _source(project: Project, model: Model) -> str:
    """Return where the price of a model is written, and of which day it is."""
    if model.price is not None:
        return "models.yaml"
    if not project.prices.lists(model):
        return "" if project.prices.price_of(model) is None else "runs on this machine"
    origin, source = project.prices.origin, project.prices.source
    return f"{project.prices.date}, {origin if origin != 'bundled' else source}"


def _limits(model: Model) -> Iterator[str]:
    limits = model.limits
    yield f"{counted(limits.concurrency, 'call')} at once"
    if limits.rpm is not None:
        yield f"{limits.rpm:,} requests per minute"
    if limits.tpm is not None:
        yield f"{limits.tpm:,} tokens per minute"
    yield f"timeout {fixed(limits.timeout_s)} s, {counted(limits.attempts, 'attempt')}"


def _uses(project: Project, names: frozenset[str]) -> dict[str, list[Use]]:
    """Return the experiments that call each of some models, and what for."""
    uses: dict[str, list[Use]] = {}
    for experiment in project.experiments.values():
        judging = project.judging_models_of(experiment)
        roles = {
            "generates": {generating.name for _, generating, _ in experiment.models},
            "judges": judging,
            "refines": project.other_models_of(experiment) - judging,
        }
        for model in names & frozenset().union(*roles.values()):
            named = ", ".join(role for role, used in roles.items() if model in used)
            uses.setdefault(model, []).append(Use(experiment.id, named))
    return uses
