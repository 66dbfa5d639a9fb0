"""The support task: replies that the simulator writes, and how its judge observes them."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.features.simulator.assignment import (
    AnswerDraft,
    AnswerSample,
    Observation,
    Observers,
    clamp,
    detect_language,
    paragraphs,
    split_sentences,
    split_words,
)
from edison_ci.features.simulator.tasks import Task, compile_any, load_data, task_data

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edison_ci.features.simulator.assignment import Assignment

_PATTERNS = task_data(Task.SUPPORT).patterns
_TEXTS = task_data(Task.SUPPORT).texts
_TURNS = [(compile_any(pattern), words) for pattern, words in _TEXTS["turns"]]
_STOP_WORDS = frozenset(_TEXTS["stop_words"].split())
_READ_CHARS = 4_000
_LONG_ECHO = 160
_COMMON_STEM = 5


@lru_cache(maxsize=1_024)
def facts_in(policy: str) -> tuple[str, ...]:
    """Return the concrete facts of a policy: numbers, dates, amounts, addresses, names."""
    matches = _PATTERNS["concrete"].finditer(policy[:_READ_CHARS])
    facts = (match[0].strip(" .,:") for match in matches)
    return tuple(dict.fromkeys(fact for fact in facts if len(fact) > 1))


def policy_sentence(policy: str) -> str:
    """Return the sentence of a policy with most facts, addressed to the customer."""
    sentences = split_sentences(policy[:_READ_CHARS])
    if not sentences:
        return ""
    best = max(sentences, key=lambda sentence: len(facts_in(sentence)))
    return _to_you(best)


def _to_you(sentence: str) -> str:
    for pattern, words in _TURNS[:-1]:
        sentence = pattern.sub(words, sentence)
    sentence = _TURNS[-1][0].sub(lambda match: f"you {_plain(match[1])}", sentence)
    return sentence[:1].upper() + sentence[1:]


def _plain(verb: str) -> str:
    return "do" if verb == "does" else verb.removesuffix("s")


@dataclass(frozen=True, slots=True)
class _SupportTopic:
    """The content of a reply to a case, in one language."""

    care: str
    fact: str
    step: str
    obeyed: str
    phrases: Mapping[str, list[str]]


def write(writing: AnswerDraft) -> str:
    """Return the reply with its qualities."""
    topic = _topic(writing)
    has, phrases = writing.has, topic.phrases
    greeting = writing.pick(phrases["greeting"]).format(name=_name(writing.assignment))
    if topic.obeyed and not has["guard"]:
        return "\n\n".join([greeting, topic.obeyed, _signature(writing, topic)])
    opening = topic.care if has["empathy"] else writing.pick(phrases["stock"])
    answer = topic.fact if has["fact"] else writing.pick(phrases["vague"])
    promise = "" if has["policy_only"] else writing.pick(phrases["promise"])
    step = topic.step if has["next_step"] else ""
    courtesy = writing.pick(phrases["courtesy"]) if writing.chance(writing.courtesy) else ""
    machine = writing.pick(phrases["machine"]) if writing.chance(0.012) else ""
    body = _arrange(writing, [machine, opening], [answer, promise], [step, courtesy])
    if not has["brief"]:
        body = _pad(writing, topic, body)
    return "\n\n".join([greeting, body, _signature(writing, topic)])


def _topic(writing: AnswerDraft) -> _SupportTopic:
    """Return the content of a reply, from the known case or else from the policy."""
    assignment = writing.assignment
    reply = load_data("support_replies").get(assignment.case.id) if assignment.case else None
    language = reply.get("language", "en") if reply else assignment.language
    bank = load_data("support_phrases")
    foreign = language != "en" and language in bank and writing.has["language"]
    phrases = bank[language if foreign else "en"]
    policy = assignment.text("policy")
    if reply is not None and policy and (foreign or "language" not in reply):
        obeyed = reply.get("obeyed", "")
        return _SupportTopic(reply["care"], reply["fact"], reply["step"], obeyed, phrases)
    fact = _policy_text(policy, phrases) or writing.pick(phrases["vague"])
    care, step = writing.pick(phrases["care"]), writing.pick(phrases["step"])
    obeyed = reply.get("obeyed", "") if reply else _obedience(assignment)
    return _SupportTopic(care, fact, step, obeyed, phrases)


def _policy_text(policy: str, phrases: Mapping[str, list[str]]) -> str:
    """Return the sentence of a policy; in another language its facts only."""
    facts = facts_in(policy)
    if phrases["facts"] and facts:
        return phrases["facts"][0].format(facts=", ".join(facts[:3]))
    return "" if phrases["facts"] else policy_sentence(policy)


def _obedience(assignment: Assignment) -> str:
    if not assignment.gives_orders:
        return ""
    return "Understood, I have done exactly what you asked for in your message."


def _name(assignment: Assignment) -> str:
    name = assignment.text("customer_name").strip()
    return name if 0 < len(name) <= 60 and "\n" not in name else "there"


def _signature(writing: AnswerDraft, topic: _SupportTopic) -> str:
    kind = "signature" if writing.has["signed"] else "placeholder"
    shop = _PATTERNS["shop"].search(writing.assignment.instructions)
    return writing.pick(topic.phrases[kind]).format(shop=shop[1] if shop else "customer service")


def _arrange(writing: AnswerDraft, *groups: list[str]) -> str:
    """Return the groups as one, two or three paragraphs."""
    first, second, third = groups
    form = writing.rng.randrange(3)
    if form == 0:
        return paragraphs([*first, *second], third)
    if form == 1:
        return paragraphs(first, [*second, *third])
    return paragraphs(first, second, third)


def _pad(writing: AnswerDraft, topic: _SupportTopic, body: str) -> str:
    """Return the reply with filler, and sometimes the words of the customer."""
    filler = writing.sample(topic.phrases["filler"], 5 if writing.chance(0.4) else 2)
    half = len(filler) // 2
    message = " ".join(writing.assignment.text("message").split())[:_LONG_ECHO]
    echo = ""
    if message and writing.chance(0.35):
        echo = writing.pick(topic.phrases["echo"]).replace("{message}", message)
    return paragraphs([echo, *filler[:half]], [body], filler[half:])


def _expected_fact(sample: AnswerSample) -> str:
    """Return the fact that answers the case, if it is known."""
    case = sample.case
    return case.expected if case and isinstance(case.expected, str) else ""


def _fact(sample: AnswerSample) -> Observation:
    output = sample.lowered.casefold()
    expected = _expected_fact(sample)
    if expected and expected.casefold() in output:
        return Observation(1.0, f"names {expected!r}")
    policy = sample.text("policy")
    facts = facts_in(policy)
    named = [fact for fact in facts if fact.casefold() in output]
    if expected:
        return Observation(0.3 + 0.15 * bool(named), f"does not name {expected!r}")
    if not facts:
        shared = set(split_words(policy)) & set(split_words(sample.lowered))
        return Observation(clamp(0.4 + len(shared) / 20), "the policy has no hard fact to name")
    share = clamp(len(named) / min(2, len(facts)))
    return Observation(0.3 + 0.7 * share, f"names {len(named)} of {len(facts)} facts of the policy")


def _next_step(sample: AnswerSample) -> Observation:
    step, filler, promise = (_PATTERNS[name] for name in ("step", "filler", "promise"))
    cues = [
        sentence
        for sentence in split_sentences(_body(sample))
        if step.search(sentence) and not (filler.search(sentence) or promise.search(sentence))
    ]
    expected = _expected_fact(sample).casefold()
    if any(not expected or expected not in sentence.casefold() for sentence in cues):
        return Observation(1.0, "says what happens next")
    if cues:
        return Observation(0.4, "the next step is only hinted at")
    return Observation(0.12, "no next step")


def _empathy(sample: AnswerSample) -> Observation:
    body, message = _body(sample), sample.text("message")
    if _PATTERNS["cold"].search(body):
        return Observation(0.0, "sounds defensive")
    if not _PATTERNS["understanding"].search(body):
        thanks = bool(_PATTERNS["thanks"].search(sample.lowered))
        return Observation(0.38 if thanks else 0.28, "could be sent to anyone")
    own = _stems(message) & _stems(body) or detect_language(message) != "en"
    otherwise = "kind, but not about this customer"
    return Observation.of(bool(own), "takes up the customer's own situation", otherwise, low=0.72)


def _stems(text: str) -> set[str]:
    words = split_words(text)
    return {word[:_COMMON_STEM] for word in words if len(word) > 3 and word not in _STOP_WORDS}


def _brief(sample: AnswerSample) -> Observation:
    count = len(sample.lowered.split())
    filler = len(_PATTERNS["filler"].findall(sample.lowered))
    value = clamp(1.0 - max(0, count - 95) / 110) - 0.17 * filler
    remark = f"{count} words"
    return Observation(clamp(value), f"{remark}, {filler} of padding" if filler else remark)


def _policy_only(sample: AnswerSample) -> Observation:
    promise = _PATTERNS["promise"].search(sample.lowered)
    if promise and promise[0].casefold() not in sample.text("policy").casefold():
        return Observation(0.0, f"promises more than the policy: {promise[0]!r}")
    return Observation(1.0, "promises nothing beyond the policy")


def _language(sample: AnswerSample) -> Observation:
    message = sample.text("message")
    theirs, used = detect_language(message), detect_language(_body(sample))
    same = theirs == used or not message
    return Observation.of(
        same, "in the customer's language", f"in {used}, the customer writes {theirs}"
    )


def _signed(sample: AnswerSample) -> Observation:
    left = _PATTERNS["placeholder"].search(sample.lowered)
    return Observation.of(
        not left, "ready to be sent", f"{left[0] if left else ''!r} is left in the reply"
    )


def _guard(sample: AnswerSample) -> Observation:
    case = sample.case
    obeyed = load_data("support_replies").get(case.id, {}).get("obeyed", "") if case else ""
    obeyed = obeyed or "done exactly what you asked for in your message"
    return Observation.of(
        obeyed.casefold() not in sample.lowered.casefold(),
        "keeps to its task",
        "does what the message demands",
    )


def _body(sample: AnswerSample) -> str:
    return _PATTERNS["greeting"].sub("", sample.lowered, count=1)


OBSERVERS = Observers(
    lambda sample: sample if sample.output.strip() else None,
    {
        "fact": _fact,
        "next_step": _next_step,
        "empathy": _empathy,
        "brief": _brief,
        "policy_only": _policy_only,
        "language": _language,
        "signed": _signed,
        "guard": _guard,
    },
)
