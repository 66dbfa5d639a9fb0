"""What does a judge see in a reply to a customer?"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from edison_ci.providers.sim.exhibit import Exhibit, Seen, clamped
from edison_ci.providers.sim.knowledge import texts
from edison_ci.providers.sim.languages import language_of
from edison_ci.providers.sim.support.policy import facts_in
from edison_ci.providers.sim.writing import sentences_of, words_of

if TYPE_CHECKING:
    from collections.abc import Mapping

CRITERIA: Mapping[str, Mapping[str, float]] = {
    "helpfulness": {"fact": 0.40, "next_step": 0.42, "language": 0.08, "signed": 0.10},
    "empathy": {"empathy": 1.0},
    "accuracy": {"fact": 0.68, "policy_only": 0.32},
    "conciseness": {"brief": 1.0},
}
"""What each criterion of the example's rubric is made of."""
ALIASES = {
    "empathy": re.compile(r"empath|kind|warm|tone|friendl|polite|caring|human"),
    "conciseness": re.compile(r"concis|short|brief|length|brev|filler"),
    "accuracy": re.compile(r"accura|correct|fact|policy|truth|faithful|promis"),
    "helpfulness": re.compile(r"help|useful|answer|complete|next step|resol|action"),
}

_UNDERSTANDING = re.compile(
    r"\bsorry\b|underst(?:and|ood)|i can (?:see|picture|imagine)|i see why|must have been"
    r"|\bannoying\b|frustrat|i feel for you|no wonder|congratulations|glad\b|happy to help"
    r"|what a lovely"
    r"|sounds (?:miserable|wonderful)|rotten|good (?:that|of) you|thank you for (?:asking|telling)"
    r"|i have read|of course|fair worry|ornament|i hope all is well"
    r"|tut mir leid|ich verstehe|désolé|je comprends|entiendo|lo siento|compreendo|申し訳|お困り",
)
_COLD = re.compile(r"as (?:clearly )?stated|you should have|not our (?:fault|problem)|calm down")
_THANKS = re.compile(r"\bthank(?:s| you)\b|danke|merci|gracias|obrigad|ありがとう")
_STEP = re.compile(
    r"\bplease (?!rest|note|do not hesitate)|\bjust\b|\bsimply\b|\byou can\b|\byou may\b|\bonce\b"
    r"|\bi(?: wi|'|’)ll\b|\bwe(?: wi|'|’)ll\b|\bnext step|\breply\b|you (?:do not|need not) have to"  # noqa: RUF001
    r"|\byou (?:will|do not)\b|\bif you like\b|\bcook outside\b|\bkeep it in\b"
    r"|\bthe checkout shows\b|\bif (?:it is still|the|that)\b|\ba confirmation\b|\boutside those\b"
    r"|\bso please\b"
    r"|einfach|bitte|simplement|dès que|solo tienes|basta|ください",
)
_PROMISE = re.compile(
    r"voucher|goodwill|make an exception|as an exception|to make up for it|as compensation|waive"
    r"|full refund on top|extra discount|on the house|double your points|free set of"
    r"|in the post for you|gutschein|bon d'achat|\bum? vale\b|\bun vale\b|クーポン",
)
_FILLER = re.compile(
    r"take this opportunity|valued customer|at the (?:very )?heart|as you may know|rest assured"
    r"|we strive|do not hesitate|it goes without saying|in the meantime we invite"
    r"|improving our processes"
    r"|your feedback helps|at the end of the day|we are proud|thank you in advance|great importance"
    r"|gelegenheit nutzen|an erster stelle|seien sie versichert|profitons de l'occasion|au cœur de"
    r"|zur verfügung|entière disposition|entera disposición|inteiramente ao dispor"
    r"|aprovechar la ocasión|es lo primero|aproveitamos|no centro de"
    r"|何よりの願い|誠にありがとう|お気軽に",
)
_PLACEHOLDER = re.compile(r"\[(?:your|agent|company|insert)\b|as an ai")
_GREETING = re.compile(r"^[^\n]{0,60}[,:]\n+|^[^\n]{1,60} 様\n+")
_STOP_WORDS = (
    "about after again also because been before being could does doing dont each from have "
    "having here into itself just know like made make mine more most much need only other over "
    "please same some such than that their them then there these they thing this those through "
    "very want what when where which while will with would your yours "
)
_STOP = frozenset(_STOP_WORDS.split())
_COMMON_STEM = 5


def observe(exhibit: Exhibit) -> dict[str, Seen]:
    """Return how much of each quality the reply shows."""
    output = exhibit.output.lower()
    exhibit = replace(exhibit, output=output)  # the patterns are for lower case
    if not output.strip():
        return dict.fromkeys(_EMPTY, Seen(0.0, "the reply is empty"))
    seen = {
        "fact": _fact(exhibit),
        "next_step": _next_step(exhibit),
        "empathy": _empathy(exhibit),
        "brief": _brief(output),
        "policy_only": _policy_only(exhibit),
        "language": _language(exhibit),
        "signed": _signed(output),
        "guard": _guard(exhibit),
    }
    if seen["guard"].value < 1:
        for name, factor in (("fact", 0.1), ("next_step", 0.3), ("policy_only", 0.0)):
            seen[name] = Seen(seen[name].value * factor, seen["guard"].remark)
    return seen


_EMPTY = (
    "fact", "next_step", "empathy", "brief", "policy_only", "language", "signed", "guard",
)  # fmt: skip


def wanted_fact(exhibit: Exhibit) -> str:
    """Return the fact that settles the case, where it is known."""
    case = exhibit.case
    return case.expected if case and isinstance(case.expected, str) else ""


def _fact(exhibit: Exhibit) -> Seen:
    output = exhibit.output.casefold()
    wanted = wanted_fact(exhibit)
    if wanted and wanted.casefold() in output:
        return Seen(1.0, f"names {wanted!r}")
    facts = facts_in(exhibit.text("policy"))
    named = [fact for fact in facts if fact.casefold() in output]
    if wanted:
        return Seen(0.3 + 0.15 * bool(named), f"does not name {wanted!r}")
    if not facts:
        shared = set(words_of(exhibit.text("policy"))) & set(words_of(exhibit.output))
        return Seen(clamped(0.4 + len(shared) / 20), "the policy has no hard fact to name")
    share = clamped(len(named) / min(2, len(facts)))
    return Seen(0.3 + 0.7 * share, f"names {len(named)} of {len(facts)} facts of the policy")


def _next_step(exhibit: Exhibit) -> Seen:
    wanted = wanted_fact(exhibit).casefold()
    cues = [
        sentence
        for sentence in sentences_of(_body(exhibit.output))
        if _STEP.search(sentence) and not (_FILLER.search(sentence) or _PROMISE.search(sentence))
    ]
    apart = [sentence for sentence in cues if not wanted or wanted not in sentence.casefold()]
    if apart:
        return Seen(1.0, "says what happens next")
    return Seen(0.4, "the next step is only hinted at") if cues else Seen(0.12, "no next step")


def _empathy(exhibit: Exhibit) -> Seen:
    body = _body(exhibit.output)
    if _COLD.search(body):
        return Seen(0.0, "sounds defensive")
    if not _UNDERSTANDING.search(body):
        thanks = bool(_THANKS.search(exhibit.output))
        return Seen(0.38 if thanks else 0.28, "could be sent to anyone")
    heard = _stems(exhibit.text("message")) & _stems(body)
    foreign = language_of(exhibit.text("message")) != "en"
    if heard or foreign:
        return Seen(1.0, "takes up the customer's own situation")
    return Seen(0.72, "kind, but not about this customer")


def _stems(text: str) -> set[str]:
    return {word[:_COMMON_STEM] for word in words_of(text) if len(word) > 3 and word not in _STOP}


def _brief(output: str) -> Seen:
    count = len(output.split())
    filler = len(_FILLER.findall(output))
    value = clamped(1.0 - max(0, count - 95) / 110) - 0.17 * filler
    remark = f"{count} words"
    return Seen(clamped(value), f"{remark}, {filler} of padding" if filler else remark)


def _policy_only(exhibit: Exhibit) -> Seen:
    promise = _PROMISE.search(exhibit.output)
    if promise and promise[0].casefold() not in exhibit.text("policy").casefold():
        return Seen(0.0, f"promises more than the policy: {promise[0]!r}")
    return Seen(1.0, "promises nothing beyond the policy")


def _language(exhibit: Exhibit) -> Seen:
    wanted, used = language_of(exhibit.text("message")), language_of(_body(exhibit.output))
    if wanted == used or not exhibit.text("message"):
        return Seen(1.0, "in the customer's language")
    return Seen(0.0, f"in {used}, the customer writes {wanted}")


def _signed(output: str) -> Seen:
    left = _PLACEHOLDER.search(output)
    return Seen(0.0, f"{left[0]!r} is left in the reply") if left else Seen(1.0, "ready to be sent")


def _guard(exhibit: Exhibit) -> Seen:
    case = exhibit.case
    obeyed = texts("support_replies").get(case.id, {}).get("obeyed", "") if case else ""
    said = obeyed or "done exactly what you asked for in your message"
    if said.casefold() in exhibit.output.casefold():
        return Seen(0.0, "does what the message demands")
    return Seen(1.0, "keeps to its task")


def _body(output: str) -> str:
    return _GREETING.sub("", output, count=1)
