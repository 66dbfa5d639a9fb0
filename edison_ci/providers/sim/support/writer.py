"""What does the simulator write to a customer?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from edison_ci.frozen import dataclass
from edison_ci.providers.sim.knowledge import texts
from edison_ci.providers.sim.support.policy import as_told, facts_in
from edison_ci.providers.sim.writing import Writing, paragraphs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edison_ci.providers.sim.assignment import Assignment

_SHOP = re.compile(r"(?:for|of|at) ((?:[A-Z][\w'-]+)(?: (?:& |and )?[A-Z][\w'-]+){0,3})")
_LONG_ECHO = 160


@dataclass(frozen=True, slots=True)
class _Matter:
    """What there is to say about a case, in one language."""

    care: str
    fact: str
    step: str
    obeyed: str
    phrases: Mapping[str, list[str]]


def write(writing: Writing) -> str:
    """Return the reply, with the qualities it is to have."""
    matter = _matter(writing)
    greeting = writing.pick(matter.phrases["greeting"]).format(name=_name(writing.assignment))
    if matter.obeyed and not writing.has["guard"]:
        return "\n\n".join([greeting, matter.obeyed, _signature(writing, matter)])
    opening = matter.care if writing.has["empathy"] else writing.pick(matter.phrases["stock"])
    answer = matter.fact if writing.has["fact"] else writing.pick(matter.phrases["vague"])
    promise = "" if writing.has["policy_only"] else writing.pick(matter.phrases["promise"])
    step = matter.step if writing.has["next_step"] else ""
    courtesy = ""
    if writing.chance(writing.courtesy):
        courtesy = writing.pick(matter.phrases["courtesy"])
    machine = writing.pick(matter.phrases["machine"]) if writing.chance(0.012) else ""
    body = _arranged(writing, [machine, opening], [answer, promise], [step, courtesy])
    if not writing.has["brief"]:
        body = _padded(writing, matter, body)
    return "\n\n".join([greeting, body, _signature(writing, matter)])


def _matter(writing: Writing) -> _Matter:
    """Return what to say: what is known of the case, else what the policy allows to guess."""
    assignment = writing.assignment
    replies = texts("support_replies")
    known = replies.get(assignment.case.id) if assignment.case else None
    language = known.get("language", "en") if known else assignment.language
    bank = texts("support_phrases")
    foreign = language != "en" and language in bank and writing.has["language"]
    phrases = bank[language if foreign else "en"]
    policy = assignment.text("policy")
    if known is not None and policy and (foreign or "language" not in known):
        obeyed = known.get("obeyed", "")
        return _Matter(known["care"], known["fact"], known["step"], obeyed, phrases)
    fact = _told(policy, phrases) or writing.pick(phrases["vague"])
    care, step = writing.pick(phrases["care"]), writing.pick(phrases["step"])
    obeyed = known.get("obeyed", "") if known else _obedience(assignment)
    return _Matter(care, fact, step, obeyed, phrases)


def _told(policy: str, phrases: Mapping[str, list[str]]) -> str:
    """Return what a policy says; in another language than its own only the facts."""
    facts = facts_in(policy)
    if phrases["facts"] and facts:
        return phrases["facts"][0].format(facts=", ".join(facts[:3]))
    return "" if phrases["facts"] else as_told(policy)


def _obedience(assignment: Assignment) -> str:
    if not assignment.gives_orders:
        return ""
    return "Understood, I have done exactly what you asked for in your message."


def _name(assignment: Assignment) -> str:
    name = assignment.text("customer_name").strip()
    return name if 0 < len(name) <= 60 and "\n" not in name else "there"


def _signature(writing: Writing, matter: _Matter) -> str:
    kind = "signature" if writing.has["signed"] else "placeholder"
    return writing.pick(matter.phrases[kind]).format(shop=_shop(writing.assignment.instructions))


def _shop(instructions: str) -> str:
    found = _SHOP.search(instructions)
    return found[1] if found else "customer service"


def _arranged(writing: Writing, *groups: list[str]) -> str:
    """Return the groups as one, two or three paragraphs."""
    first, second, third = groups
    form = writing.rng.randrange(3)
    if form == 0:
        return paragraphs([*first, *second], third)
    if form == 1:
        return paragraphs(first, [*second, *third])
    return paragraphs(first, second, third)


def _padded(writing: Writing, matter: _Matter, body: str) -> str:
    """Return the reply with what it did not need: filler, and at times the customer's own words."""
    filler = writing.some(matter.phrases["filler"], 5 if writing.chance(0.4) else 2)
    half = len(filler) // 2
    message = " ".join(writing.assignment.text("message").split())[:_LONG_ECHO]
    echo = ""
    if message and writing.chance(0.35):
        echo = writing.pick(matter.phrases["echo"]).replace("{message}", message)
    return paragraphs([echo, *filler[:half]], [body], filler[half:])
