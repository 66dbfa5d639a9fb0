"""Refinement: changes of prompts suggested with proof, and put before people."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from edison_ci.operate.sessions import SessionFactory, beside_loops
from edison_ci.refine.asking import refiner_of
from edison_ci.refine.refining import Orders, refine
from edison_ci.refine.requests import refine_request
from edison_ci.refine.trying import Bench, Wallet
from edison_ci.review.desk import Desk
from edison_ci.review.offering import Wish, newest, offer
from edison_ci.store.suggestions import list_suggestions

if TYPE_CHECKING:
    from edison_ci.config.load import Project
    from edison_ci.refine.refining import Refined
    from edison_ci.review.offering import Offered


def refine_prompt(
    project: Project,
    experiment: str,
    *,
    prompt: str | None = None,
    orders: Orders | None = None,
    budget_microusd: int | None = None,
) -> Refined:
    """Suggest small changes to a prompt, each tried on training and held-out cases."""
    request = refine_request(project, "refine", experiment, prompt)
    wallet = Wallet.of(request.subject, budget_microusd)
    factory = SessionFactory()
    bench = Bench(request.subject, lambda: factory.tools(request.project), wallet)
    orders = orders or Orders(request.subject.limits.candidates)
    wanted = replace(orders, audit=request.audited)
    return beside_loops(partial(refine, bench, refiner_of(request.model), wanted))


def propose(
    project: Project, suggestion: str | None = None, *, open_pr: bool = False, force: bool = False
) -> Offered | None:
    """Put a suggestion on a branch; without an id the newest that was shown to help.

    Returns None if no suggestion was shown to help.
    """
    desk = Desk.of(project, offline=not open_pr)
    if suggestion is None:
        one = newest(desk.read(list_suggestions), force=force)
    else:
        one = desk.find(suggestion)
    if one is None:
        return None
    wish = Wish(open_pr, force)
    return beside_loops(lambda: asyncio.run(offer(desk, one, wish)))
