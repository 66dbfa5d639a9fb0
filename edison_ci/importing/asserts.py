"""Which parts of our grade are the assertions of a test?"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.documents.marks import Fault
from edison_ci.frozen import dataclass
from edison_ci.importing.drafts import GraderText, Part, Told, Wanted
from edison_ci.importing.fidelity import Status
from edison_ci.importing.grader_texts import HOLE, KINDS, NEEDS, grader_messages, has_hole
from edison_ci.importing.parts import (
    Given,
    combined,
    finished,
    key_of,
    settings_of,
    wanted_of,
)
from edison_ci.importing.prompts import Refusal, messages_of, read_messages
from edison_ci.importing.source import CODE_NOTE, Refused
from edison_ci.importing.text_asserts import CHECKS, NONE_LIKE_IT

if TYPE_CHECKING:
    from collections.abc import Collection

    from edison_ci.documents.marks import Json
    from edison_ci.importing.drafts import Message
    from edison_ci.importing.fidelity import Fidelity, Node
    from edison_ci.importing.providers import Providers
    from edison_ci.importing.source import Source

_KNOWN = frozenset(
    {"type", "value", "threshold", "weight", "metric", "provider", "rubricPrompt", "config"}
)
_CODE = frozenset({"javascript", "python", "ruby"})
_TRANSFORMS = frozenset({"transform", "contextTransform"})
_OUTPUT = re.compile(r"\{\{-?\s*(?:output|completion)\s*-?\}\}")
_RUBRIC = re.compile(r"\{\{-?\s*(?:rubric|criteria|ideal)\s*(?:\|[^}]*)?-?\}\}")
_LONGEST = 10_000
_STAND_IN = "the_output_to_grade"


class Scope(NamedTuple):
    """What stands around an assertion."""

    variables: Collection[str]
    """Names of the case's variables."""
    provider: Node | None = None
    """Model that grades, from options."""
    rubric_prompt: Node | None = None


@dataclass(frozen=True, slots=True)
class Asserts:
    """Turns assertions into parts of the grade."""

    source: Source
    providers: Providers

    @property
    def _fidelity(self) -> Fidelity:
        return self.source.fidelity

    def read(self, node: Node, scope: Scope) -> list[Part]:
        """Return the parts of a list of assertions, and report each of them."""
        found = self.source.follow(node)
        if found is None:
            return []
        if isinstance(found.value, list):
            self._fidelity.seen(found)
            return [part for child in found.children() for part in self.read(child, scope)]
        kind = found.value.get("type") if isinstance(found.value, dict) else None
        if not isinstance(kind, str):
            self._fidelity.unsupported(found, "an assertion is a map with a type")
            return []
        if kind == "assert-set":
            return self._set(found, scope)
        told = self._one(Given(found, self.source), scope)
        note = told.note if told.part is not None else f"{kind}: {told.note}"
        self._fidelity.say(told.status, found, told.about, note)
        return [replace(told.part, node=found)] if told.part is not None else []

    def _one(self, given: Given, scope: Scope) -> Told:
        for child in given.node.children():
            if child.name in _TRANSFORMS:
                return Told(None, Status.UNSUPPORTED, f"{child.name}: {CODE_NOTE}")
            if child.name not in _KNOWN:
                self._fidelity.unsupported(child, "no such option of an assertion is known")
        try:
            return finished(self._of_kind(given, scope), given)
        except Refusal as refusal:
            return Told(None, Status.UNSUPPORTED, refusal.note)
        except Refused as refused:
            return Told(None, Status.UNSUPPORTED, str(refused))
        except Fault as fault:
            return Told(None, Status.UNSUPPORTED, f"{fault.message} ({fault.hint})")

    def _of_kind(self, given: Given, scope: Scope) -> Told:
        kind = given.kind
        if kind in _CODE:
            return Told(None, Status.UNSUPPORTED, CODE_NOTE)
        if kind in CHECKS:
            if (provider := given.node.get("provider")) is not None:
                self._fidelity.unsupported(provider, "no model takes part in this check")
            if (config := given.node.get("config")) is not None:
                self._fidelity.unsupported(config, "this check has no such options")
            return CHECKS[kind](given)
        if kind in KINDS:
            return self._grader(given, scope)
        if kind == "moderation":
            note = "any hit blocks the answer; the judge of the project screens for all categories"
            part = Part("screen", key_of("moderation"))
            return Told(part, Status.APPROXIMATED, note, "@experiments safety.moderation")
        if kind == "select-best":
            note = "each model is compared with the first, pair by pair; the criterion is not used"
            part = Part("pairwise", key_of("pairwise"))
            return Told(part, Status.APPROXIMATED, note, "@experiments judges.pairwise")
        why = NONE_LIKE_IT.get(kind, f"no check does what {kind} does")
        return Told(None, Status.UNSUPPORTED, why)

    # --- by a model -------------------------------------------------------------------------------

    def _grader(self, given: Given, scope: Scope) -> Told:
        kind = given.kind
        lacking = [name for name in NEEDS.get(kind, ()) if name not in scope.variables]
        if lacking:
            raise Refusal(f"its grader needs a variable {lacking[0]!r}; the test has none")
        messages = grader_messages(kind, negate=given.negated)
        own = None
        if has_hole(messages) and not given.negated:
            own = self._own_words(given, scope)
        messages = own or messages
        arguments: tuple[Wanted, ...] = ()
        if has_hole(messages):
            value = given.value()
            if isinstance(value, list):
                value = "\n".join(f"- {each}" for each in value)
            arguments = (wanted_of(value),)
            if len(str(arguments[0].value)) > _LONGEST:
                raise Refusal(f"its value is longer than {_LONGEST:,} characters")
        by = self._judge(given, scope)
        grader = GraderText(f"not-{kind}" if given.negated else kind, messages, by)
        settings: tuple[tuple[str, Json], ...] = (("threshold", 0.7 if kind == "g-eval" else 0.5),)
        key = key_of([grader.kind, by, [list(message) for message in messages]])
        part = Part("grader", key, None, arguments, grader, settings, kind == "factuality")
        note = "its own words; the reply must be a score" if own else "a grader in our own words"
        return Told(part, Status.APPROXIMATED, note, f"@experiments judges.graders {grader.kind}")

    def _own_words(self, given: Given, scope: Scope) -> tuple[Message, ...] | None:
        """Return the grader prompt that the configuration brings along."""
        node = given.node.get("rubricPrompt") or scope.rubric_prompt
        if node is None:
            return None
        value = node.value
        try:
            if isinstance(value, str) and value.startswith("file://"):
                value = self.source.text(self.source.path(value))
            if isinstance(value, str):
                text = _OUTPUT.sub(f"{{{{ {_STAND_IN} }}}}", value)
                messages = read_messages(text, structured=value.lstrip().startswith("- role"))
            else:
                messages = messages_of(value, keep=frozenset({"output"}))
        except (Refusal, Refused, Fault) as error:
            self._fidelity.unsupported(node, f"{error}; our own words are used")
            return None
        self._fidelity.approximated(node, "prompts", "its reply must be a score, or yes or no")
        return tuple(
            message._replace(text=_RUBRIC.sub(HOLE, message.text).replace(_STAND_IN, "output"))
            for message in messages
        )

    def _judge(self, given: Given, scope: Scope) -> str | None:
        node = given.node.get("provider") or scope.provider
        if node is None:
            return None
        inner = node.get("text")
        if inner is not None and isinstance(node.value, dict) and "id" not in node.value:
            self._fidelity.seen(node)
            node = inner
        found = self.source.follow(node)
        model = self.providers.one(found) if found is not None else None
        return model.name if model is not None else None

    # --- sets -------------------------------------------------------------------------------------

    def _set(self, node: Node, scope: Scope) -> list[Part]:
        self._fidelity.seen(node)
        kind, inner, given = node.get("type"), node.get("assert"), Given(node, self.source)
        assert kind is not None
        parts = self.read(inner, scope) if inner is not None else []
        checks = [part for part in parts if part.kind == "check"]
        others = [part for part in parts if part.kind != "check"]
        for name in ("threshold", "weight", "metric"):
            self._fidelity.seen(node.get(name))
        if not checks:
            note = "its members stand on their own" if others else "nothing of it is left"
            self._fidelity.approximated(kind, "@experiments judges.graders" if others else "", note)
            return others
        try:
            settings, threshold = settings_of(given), given.number()
        except Refusal as refusal:
            self._fidelity.unsupported(kind, refusal.note)
            return parts
        settings.pop("threshold", None)
        entry, exact = combined(checks, threshold)
        note = "its score is that of the worst or best member, not their mean"
        if not exact:
            note = f"that {threshold:g} of it pass cannot be said; every member must pass"
        if others:
            note += "; members that a model grades stand on their own"
        self._fidelity.approximated(kind, f"@experiments checks {next(iter(entry))}", note)
        arguments = tuple(wanted for part in checks for wanted in part.arguments)
        ordered = tuple(sorted(settings.items()))
        key = key_of(["set", entry, ordered])
        return [Part("check", key, entry, arguments, settings=ordered), *others]
