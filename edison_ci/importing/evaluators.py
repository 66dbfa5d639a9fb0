"""Which part of our grade is an evaluator of a .prompt.yml, and which models does it need?"""

from __future__ import annotations

import re
from dataclasses import field
from typing import TYPE_CHECKING

from edison_ci.frozen import dataclass
from edison_ci.importing.drafts import (
    GraderText,
    Message,
    Names,
    Part,
    Told,
    Wanted,
    file_name,
    model_name,
)
from edison_ci.importing.fidelity import Status
from edison_ci.importing.grader_texts import choices_message, grader_messages
from edison_ci.importing.parts import check, hole, key_of
from edison_ci.importing.prompts import Refusal
from edison_ci.importing.templates import convert
from edison_ci.importing.vendors import GITHUB_MODELS

if TYPE_CHECKING:
    from edison_ci.documents.marks import Json
    from edison_ci.importing.drafts import PromptDraft
    from edison_ci.importing.fidelity import Fidelity, Node
    from edison_ci.importing.imported import Setting
    from edison_ci.importing.source import Source

_STRINGS = {
    "equals": "equals",
    "contains": "contains",
    "startsWith": "starts_with",
    "endsWith": "ends_with",
}
_BUILT_IN = frozenset({"similarity", "relevance", "groundedness", "coherence", "fluency"})
_JUDGE = "openai/gpt-4o"
_KEY = "GITHUB_TOKEN"
_KEPT = frozenset({"expected", "output"})
_COMPLETION = re.compile(r"\{\{-?\s*completion\s*-?\}\}")
_REGISTRY_PATH = re.compile(r"azureml://.*/models/([^/]+)")


@dataclass(slots=True)
class Evaluators:
    """Turns evaluators into parts of the grade, and models of GitHub into ours."""

    source: Source
    setting: Setting
    has_expected: bool = True
    """Whether a case has an expected output."""
    _models: dict[str, dict[str, Json]] = field(default_factory=dict)
    _judge: str = ""
    _spare: dict[str, dict[str, Json]] = field(default_factory=dict)
    """The judge's entry, as long as nobody needs it."""

    @property
    def _fidelity(self) -> Fidelity:
        return self.source.fidelity

    # --- models -----------------------------------------------------------------------------------

    def model(self, node: Node, id: str) -> str:
        """Return the name of the model with this id of GitHub Models."""
        found = _REGISTRY_PATH.match(id)
        if found is not None:
            id = f"openai/{found.group(1)}"
        name = self._called(id)
        target = f"{self.setting.paths.models} {name}"
        entry = self._models.get(name) or self.setting.models.get(name)
        if found is not None or (isinstance(entry, dict) and "key_env" not in entry):
            note = f"asked as {id} of GitHub Models" if found else (
                f"key_env: {_KEY} was left out; allow {GITHUB_MODELS} in .edison/trust.yaml "
                "and add it")  # fmt: skip
            self._fidelity.approximated(node, target, note)
        else:
            self._fidelity.mapped(node, target)
        return name

    def _called(self, id: str) -> str:
        entry: dict[str, Json] = {
            "provider": "openai_compatible",
            "model": id if "/" in id else f"openai/{id}",
            "base_url": GITHUB_MODELS,
        }
        if self.setting.trust.allows(_KEY, GITHUB_MODELS, "openai_compatible"):
            entry["key_env"] = _KEY
        known = {**self.setting.models, **self._models}
        same = [name for name, other in known.items() if other == entry]
        if same:
            return same[0]
        name = Names(known).free(model_name(id.rpartition("/")[2]))
        self._models[name] = entry
        return name

    def judge_name(self) -> str:
        """Return the model that judges where none is named."""
        if not self._judge:
            before = dict(self._models)
            self._judge = self.setting.judge or self._called(_JUDGE)
            self._spare = {k: v for k, v in self._models.items() if k not in before}
            for name in self._spare:
                del self._models[name]
        return self._judge

    def need_judge(self) -> None:
        """Keep the model that judges."""
        self._models |= self._spare

    def new_models(self) -> dict[str, dict[str, Json]]:
        """Return the entries that the registry lacks."""
        return dict(self._models)

    # --- evaluators -------------------------------------------------------------------------------

    def read(self, node: Node | None, prompt: PromptDraft) -> list[Part]:
        """Return the parts of a list of evaluators, and report each."""
        if node is None:
            return []
        self._fidelity.seen(node)
        found = []
        for child in node.children():
            self._fidelity.seen(child)
            named = child.get("name")
            name = file_name(str(named.value), "evaluator") if named is not None else "evaluator"
            if named is not None:
                self._fidelity.mapped(named, "@experiment checks and judges.graders, name")
            for key in ("string", "llm", "uses"):
                inner = child.get(key)
                if inner is not None:
                    found += self._one(inner, name, prompt)
        return found

    def _one(self, node: Node, name: str, prompt: PromptDraft) -> list[Part]:
        if node.name == "string":
            self._fidelity.seen(node)
            told = [(child, self._string(child, name)) for child in node.children()]
        elif node.name == "llm":
            told = [(node, self._llm(node, name))]
        else:
            told = [(node, self._built_in(node, name, prompt))]
        told = [(each, self._possible(outcome)) for each, outcome in told]
        for each, outcome in told:
            self._fidelity.say(outcome.status, each, outcome.about, outcome.note)
        return [outcome.part for _, outcome in told if outcome.part is not None]

    def _possible(self, told: Told) -> Told:
        """Return the same, unless it needs an expected output that no case has."""
        if self.has_expected or told.part is None:
            return told
        texts = [str(wanted.value) for wanted in told.part.arguments]
        texts += [m.text for m in told.part.grader.messages] if told.part.grader else []
        if not any("expected" in convert(text, keep=_KEPT).variables for text in texts):
            return told
        return Told(None, Status.UNSUPPORTED, "no row of testData has an expected output")

    def _string(self, node: Node, name: str) -> Told:
        ours = _STRINGS.get(node.name)
        converted = convert(str(node.value), keep=_KEPT)
        if ours is None or converted.faults or not str(node.value):
            return Told(None, Status.UNSUPPORTED, "allowed: equals, contains, startsWith, endsWith")
        template = converted if converted.text_is_template else None
        told = check(ours, {"value": hole()}, Wanted(converted.text, template))
        assert told.part is not None
        part = Part("check", key_of([ours, name]), told.part.check, told.part.arguments,
                    settings=(("name", name),))  # fmt: skip
        return told._replace(part=part, about=told.about.replace("@experiments", "@experiment"))

    def _llm(self, node: Node, name: str) -> Told:
        try:
            messages = self._asked(node)
        except Refusal as refusal:
            return Told(None, Status.UNSUPPORTED, refusal.note)
        model = node.get("modelId")
        by = self.model(model, str(model.value)) if model is not None else None
        note = "asked for a number instead of one of the choices"
        return self._graded(GraderText(name, messages, by), name, note)

    def _asked(self, node: Node) -> tuple[Message, ...]:
        prompt, system, choices = node.get("prompt"), node.get("systemPrompt"), node.get("choices")
        if prompt is None:
            raise Refusal("it has no prompt")
        listed = []
        for child in choices.children() if choices is not None else ():
            choice, score = child.get("choice"), child.get("score")
            if choice is None or score is None or not isinstance(score.value, int | float):
                raise Refusal("a choice has a text and a score")
            if convert(str(choice.value)).text_is_template:
                raise Refusal("a choice is a plain text")
            listed.append((str(choice.value), float(score.value)))
        if not listed or not all(0 <= score <= 1 for _, score in listed):
            raise Refusal("its choices need scores from 0 to 1")
        texts = [("system", system)] if system is not None else []
        found = []
        for role, each in [*texts, ("user", prompt)]:
            text = _COMPLETION.sub("{{ output }}", str(each.value))
            converted = convert(text, keep=_KEPT)
            if converted.faults:
                raise Refusal(converted.faults[0].message)
            found.append(Message(role, converted.text))
        last = found[-1]
        found[-1] = Message("user", f"{last.text.rstrip()}\n\n{choices_message(listed)}")
        return tuple(found)

    def _built_in(self, node: Node, name: str, prompt: PromptDraft) -> Told:
        kind = str(node.value).removeprefix("github/")
        if kind not in _BUILT_IN or not str(node.value).startswith("github/"):
            return Told(None, Status.UNSUPPORTED, f"no evaluator like {str(node.value)!r} is known")
        asked = "\n\n".join(f"{{{{ {each} }}}}" for each in sorted(prompt.variables))
        messages = tuple(
            m._replace(text=m.text.replace("{{ input }}", asked or "(no variables)"))
            for m in grader_messages(kind)
        )
        return self._graded(GraderText(kind, messages, None), name, "a grader in our own words")

    def _graded(self, grader: GraderText, name: str, note: str) -> Told:
        settings: tuple[tuple[str, Json], ...] = (("name", name), ("threshold", 0.5))
        key = key_of([grader.kind, grader.by, [list(m) for m in grader.messages], name])
        part = Part("grader", key, None, (), grader, settings)
        return Told(part, Status.APPROXIMATED, note, "@experiment judges.graders")
