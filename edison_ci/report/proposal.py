"""The text of a pull request that offers a refined prompt.

Why, for which weaknesses, what was measured before and after, which answers were bad, and how to
say no. The note, the reasons and the answers are written by models: they stand in code, and the
title and the commit, which a forge reads for commands, hold none of it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from edison_ci._dataclass import dataclass
from edison_ci.forge.capping import MAX_BODY_CHARS
from edison_ci.formatting import NOTHING, change, counted, dollars, score
from edison_ci.report.layout import Limit, Section, Table, fitted
from edison_ci.report.safe_markdown import code, fenced, prose
from edison_ci.rounding import fixed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edison_ci.store.suggestions import Suggestion

MOST_EXAMPLES = 10
_CASES = 20
_SETS = (("holdout", "unseen"), ("train", "training"))
"""The cases that the refiner never saw come first: only their number is the improvement."""
_EXAMPLES_CHARS = 30_000
_DECIDED = {
    "better": "better",
    "worse": "worse",
    "same": "practically the same",
    "unclear": "not known",
}
_UNTOLD = re.compile(r"[^\w -]|-(?=\d)")
"""What a title or a commit does not say: whatever a forge may take for a mention or a command."""
_HIDDEN = "<!-- edison-ci:suggestion:v1 {} -->"


@dataclass(frozen=True, slots=True)
class Example:
    """A failing answer that the refiner was shown."""

    case: str
    model: str
    score: float | None
    failed: tuple[tuple[str, str], ...] = ()
    """Names of what failed, and why."""
    output: str | None = None
    """None once it was taken away."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A suggestion and what goes with it."""

    suggestion: Suggestion
    examples: tuple[Example, ...] = ()
    private: bool = False
    """Whether texts of cases, answers and models stay in the results."""
    lines_only: bool = False
    """Whether it is offered as lines to accept, in somebody's own pull request."""

    @property
    def evidence(self) -> Mapping[str, Any]:
        """What was measured."""
        return self.suggestion.evidence


def marker(suggestion: Suggestion) -> str:
    """Return the hidden line by which a text about a suggestion is found again."""
    return _HIDDEN.format(suggestion.hash)


def title_of(suggestion: Suggestion) -> str:
    """Return what the pull request and the commit are called."""
    names = [" ".join(_UNTOLD.sub(" ", name).split())[:40] for name in suggestion.targets[:3]]
    named = ", ".join(name for name in names if name)
    return f"Refine {suggestion.prompt}{f': {named}' if named else ''}"


def message_of(suggestion: Suggestion) -> str:
    """Return what the commit says below its title: numbers, and nothing that a model wrote."""
    told = [f"Suggested by edison for the experiment {suggestion.experiment}."]
    for key, name in _SETS:
        if found := _measured(suggestion.evidence, key):
            told.append(f"On {_n(found)} {name} cases: {_changed(found)}.")
    told += ["Measured with simulated models."] if suggestion.simulated else []
    told += ["Not shown to help."] if not suggestion.proven else []
    return "\n".join(told)


def proposal_body(offer: Offer, *, most: int = MAX_BODY_CHARS) -> str:
    """Return the description of the pull request, never longer than a forge takes."""
    first = f"{marker(offer.suggestion)}\n\n"
    sections = [
        Section("", tuple(_opening(offer))),
        Section("### Why", tuple(_why(offer))),
        *_evidence(offer),
        Section("### How to decide", tuple(_deciding(offer))),
        _examples(offer),
        _guardrails(offer.suggestion),
    ]
    limit = Limit(most - len(first), len, "`edison review show`")
    return (first + fitted([one for one in sections if one is not None], limit)).rstrip() + "\n"


# --- what it is -----------------------------------------------------------------------------------


def _opening(offer: Offer) -> list[str]:
    one = offer.suggestion
    told = [
        f"edison suggests a change of {code(one.path)} for the experiment {code(one.experiment)}. "
        "It was tried before it was shown; a person decides."
    ]
    if search := _part(one.evidence, "search"):
        told.append(_searched(search))
    if one.simulated:
        told.append("**Simulated**: the models were simulated, so the numbers are an example.")
    if not one.proven:
        told.append("**Unproven**: what was measured does not show that it helps.")
    if one.edited_from is not None:
        told.append("**Edited by hand** after it was measured, and not measured again.")
    return told


def _searched(search: Mapping[str, Any]) -> str:
    told = (
        f"It is the best of {counted(search['measured'], 'version')} that a search over "
        f"{counted(search['generations'], 'generation')} measured on the training cases: their "
        "gain was chosen, that of the unseen cases was not. Its steps kept the limits of one "
        f"refinement each; all together it may go {search['wider']} times as far."
    )
    if earlier := search["earlier_looks"]:
        told += f" The unseen cases were looked at for {counted(earlier, 'other change')} before."
    return told


def _why(offer: Offer) -> list[str]:
    one = offer.suggestion
    told = []
    if one.targets:
        told.append(f"Weak so far: {', '.join(code(name) for name in one.targets)}.")
    if offer.private:
        told.append(f"The note stays with the results: {code(f'edison review show {one.id}')}.")
    elif one.note.strip():
        told += ["The refiner says:", fenced(one.note)]
    return told or ["No reason was given."]


# --- what was measured ----------------------------------------------------------------------------


def _evidence(offer: Offer) -> list[Section]:
    evidence = offer.evidence
    rows = [_row(name, found) for key, name in _SETS if (found := _measured(evidence, key))]
    if not rows:
        return [Section("### Evidence", ("Nothing was measured.",))]
    told = [prose(str(evidence["sentence"]))] if evidence.get("sentence") else []
    if evidence.get("verified") is False:
        told.append("**Improvement not verified**: too few cases are held out.")
    head = ("cases", "n", "before", "after", "change", "by luck", "so it is")
    return [
        Section("### Evidence", tuple(told), Table(head, tuple(rows))),
        Section("", tuple(_moved(evidence))),
        _criteria(evidence),
        Section("", tuple(_price(offer.suggestion))),
    ]


def _measured(evidence: Mapping[str, Any], key: str) -> Mapping[str, Any] | None:
    found = evidence.get(key)
    return found if isinstance(found, dict) else None


def _row(name: str, found: Mapping[str, Any]) -> tuple[str, ...]:
    p = _part(found, "difference").get("p")
    return (
        name,
        _n(found),
        _level(_part(found, "before")),
        _level(_part(found, "after")),
        _changed(found),
        NOTHING if p is None else f"p {fixed(p, 3)}" if p >= 0.001 else "p < 0.001",
        _DECIDED.get(str(found.get("decision")), NOTHING),
    )


def _part(found: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    part = found.get(key)
    return part if isinstance(part, dict) else {}


def _n(found: Mapping[str, Any]) -> str:
    n = found.get("n")
    return f"{n:,}" if isinstance(n, int) else NOTHING


def _level(part: Mapping[str, Any]) -> str:
    estimate, low, high = (part.get(key) for key in ("estimate", "low", "high"))
    if estimate is None:
        return NOTHING
    return score(estimate) + (
        "" if low is None or high is None else f" ({score(low)} to {score(high)})"
    )


def _changed(found: Mapping[str, Any]) -> str:
    part = _part(found, "difference")
    return change(part.get("estimate"), part.get("low"), part.get("high"))


def _moved(evidence: Mapping[str, Any]) -> list[str]:
    told = []
    for key, name in _SETS:
        for what in ("fixed", "broken"):
            cases = (_measured(evidence, key) or {}).get(what) or []
            if cases:
                more = f" and {len(cases) - _CASES:,} more" if len(cases) > _CASES else ""
                listed = ", ".join(code(str(case)) for case in cases[:_CASES])
                told.append(f"{counted(len(cases), f'{name} case')} {what}: {listed}{more}.")
    return told


def _criteria(evidence: Mapping[str, Any]) -> Section:
    rows = []
    for one in evidence.get("criteria") or []:
        before, after = one.get("before"), one.get("after")
        gained = None if before is None or after is None else after - before
        cells = (
            code(str(one.get("name"))),
            score(before),
            score(after),
            change(gained, None, None),
        )
        rows.append(cells)
    head = ("on the training cases", "before", "after", "change")
    return Section("", (), Table(head, tuple(rows)))


def _price(one: Suggestion) -> list[str]:
    growth, cost = _part(one.evidence, "growth"), _part(one.evidence, "cost_microusd")
    told = []
    if (grown := growth.get("chars")) is not None:
        told.append(
            f"The prompt {'grows' if grown >= 0 else 'shrinks'} by {abs(grown):,} characters."
        )
    if cost.get("before") is not None and cost.get("after") is not None:
        told.append(f"An answer costs {dollars(cost['after'])} ({dollars(cost['before'])} before).")
    told.append(f"To find and try it cost {dollars(one.cost_microusd)}.")
    return [" ".join(told)]


# --- what people can do ---------------------------------------------------------------------------


def _deciding(offer: Offer) -> list[str]:
    one = offer.suggestion
    if offer.lines_only:
        take = "Commit the suggested lines to take it, or resolve the comments to leave it."
    else:
        take = "Merge it to take it; nothing is merged by itself."
    reject = f'edison review reject {one.id} --reason "..."'
    return [
        take,
        f"To reject it, close it with a comment that says why, or run {code(reject)}. "
        "The next refinement is told the reason.",
        f"Suggestion {code(one.id)}.",
    ]


def _examples(offer: Offer) -> Section | None:
    """Return the failing examples, folded, as many as there is room for."""
    blocks: list[str] = []
    for number, one in enumerate(offer.examples[:MOST_EXAMPLES], 1):
        block = _example(number, one, private=offer.private)
        if sum(map(len, blocks)) + len(block) > _EXAMPLES_CHARS:
            break
        blocks.append(block)
    if not blocks:
        return None
    many = counted(len(blocks), "failing answer")
    first = f"<details><summary>{many} that the refiner was shown</summary>"
    return Section("", ("\n\n".join([first, *blocks, "</details>"]),))


def _example(number: int, one: Example, *, private: bool) -> str:
    about = f"case {code(one.case)} with {code(one.model)}, score {score(one.score)}"
    blocks = [f"**Example {number}**: {about}"]
    for name, reason in one.failed:
        blocks.append(f"Failed: {code(name)}")
        if reason and not private:
            blocks.append(fenced(reason, most=400))
    if private:
        blocks.append("Texts stay with the results.")
    elif one.output is not None:
        blocks += ["It answered:", fenced(one.output, most=1_000)]
    return "\n\n".join(blocks)


def _guardrails(one: Suggestion) -> Section | None:
    if not one.guardrails:
        return None
    rows: Sequence[tuple[str, ...]] = [
        (code(rail.rule), "kept" if rail.ok else "broken", prose(rail.detail, most=200))
        for rail in one.guardrails
    ]
    return Section("", (), Table(("guardrail", "", "found"), tuple(rows)), fold="Guardrails")
