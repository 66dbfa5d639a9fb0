"""The importer of .prompt.yml files of GitHub Models."""

from __future__ import annotations

import re
from dataclasses import field
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.config.schemas_of_users import schema_faults
from edison_ci.documents.json_text import parse_json
from edison_ci.documents.marks import Fault
from edison_ci.errors import UsageError
from edison_ci.importing.drafts import (
    Draft,
    GraderText,
    Message,
    Names,
    Part,
    PromptDraft,
    Told,
    Wanted,
    file_name,
    model_name,
)
from edison_ci.importing.experiments import Builder, Frame, Graders
from edison_ci.importing.fidelity import Fidelity, Status
from edison_ci.importing.grader_texts import choices_message, grader_messages
from edison_ci.importing.grouping import Group
from edison_ci.importing.imported import Imported, Setting, files_of, reads_back
from edison_ci.importing.parts import check, hole, key_of
from edison_ci.importing.promptfoo import NothingImportedError
from edison_ci.importing.prompts import Refusal, messages_of
from edison_ci.importing.providers import is_param
from edison_ci.importing.source import Source
from edison_ci.importing.templates import RENAMED, convert
from edison_ci.importing.variables import name_of
from edison_ci.importing.vendors import GITHUB_MODELS

if TYPE_CHECKING:
    from pathlib import Path

    from edison_ci.documents.marks import Json
    from edison_ci.importing.fidelity import Node


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


_PARAMS = {
    "temperature": "temperature",
    "maxTokens": "max_tokens",
    "max_tokens": "max_tokens",
    "maxCompletionTokens": "max_tokens",
    "topP": "top_p",
    "top_p": "top_p",
    "frequencyPenalty": "frequency_penalty",
    "presencePenalty": "presence_penalty",
    "seed": "seed",
    "stop": "stop",
}
_UNKNOWN = "no such key of a .prompt.yml is known here"


def import_prompt_yml(file: Path, *, shown: str, name: str, setting: Setting) -> Imported:
    """Return what a .prompt.yml becomes; nothing is written."""
    fidelity = Fidelity()
    source = Source(file.parent, fidelity, shown)
    root = source.main(file.name)
    if not isinstance(root.value, dict):
        raise UsageError(f"{shown}{file.name} is not a map", hint="give a .prompt.yml file")
    return _Walk(root, source, name, setting).imported()


class _Walk:
    """Goes through a file once."""

    def __init__(self, root: Node, source: Source, name: str, setting: Setting) -> None:
        self.root, self.source, self.name, self.setting = root, source, name, setting
        self.fidelity = source.fidelity
        self.evaluators = Evaluators(source, setting)

    def imported(self) -> Imported:
        about = self._about()
        prompt = self._prompt()
        model = self._model()
        self._params(prompt)
        self._format(prompt)
        drafts = self._drafts(prompt)
        self.evaluators.has_expected = any(draft.expected is not None for draft in drafts)
        parts = self.evaluators.read(self.root.get("evaluators"), prompt)
        for draft in drafts:
            draft.parts = parts
        paths = self.setting.paths
        judge = self.evaluators.judge_name()
        frame = Frame(self.name, about, judge, 1, paths.datasets, paths.prompts)
        graders = Graders(self.name)
        group = Group((prompt.id,), (model,), drafts)
        laid = Builder(frame, graders, self.fidelity, {prompt.id: prompt}).lay(group, self.name)
        if not parts:
            note = "without evaluators only that there is an answer is checked"
            self.fidelity.at(Status.APPROXIMATED, self.root.where, "(no evaluators)", note)
        self.fidelity.leftovers(self.root.document, _UNKNOWN)
        self._resolve()
        if laid.needs_judge:
            self.evaluators.need_judge()
        return Imported(
            self.name,
            str(about.get("description", "")),
            (self.name,),
            files_of(paths, [prompt, *graders.drafts.values()], [laid]),
            self.evaluators.new_models(),
            model,
            judge if laid.needs_judge else None,
            self.fidelity,
        )

    def _about(self) -> dict[str, Json]:
        found: dict[str, Json] = {}
        for key, ours in (("name", "title"), ("description", "description")):
            node = self.root.get(key)
            if node is not None:
                found[ours] = " ".join(str(node.value).split())[: 200 if ours == "title" else 1_000]
                self.fidelity.mapped(node, f"@experiment {ours}")
        text = str(found.get("description", ""))
        found["objective"] = (
            text if len(text) >= 20 else f"Pass the checks imported for {self.name}."
        )
        return found

    def _model(self) -> str:
        node = self.root.get("model")
        if node is None or not isinstance(node.value, str):
            raise NothingImportedError("it names no model", self.fidelity)
        return self.evaluators.model(node, node.value)

    # --- the prompt -------------------------------------------------------------------------------

    def _prompt(self) -> PromptDraft:
        node = self.root.get("messages")
        if node is None or not isinstance(node.value, list):
            raise NothingImportedError("it has no messages", self.fidelity)
        try:
            messages = messages_of(node.value)
        except Refusal as refusal:
            self.fidelity.unsupported(node, refusal.note)
            raise NothingImportedError("its messages cannot be said here", self.fidelity) from None
        names = frozenset(name for m in messages for name in convert(m.text).required)
        draft = PromptDraft(self.name, (), messages, {"expect": "none"}, names)
        if not reads_back(draft):
            self.fidelity.unsupported(node, "our reader would not find the same messages in it")
            raise NothingImportedError("its messages cannot be said here", self.fidelity)
        self.fidelity.mapped(node, f"{self.setting.paths.prompts}/{self.name}.md")
        return draft

    def _params(self, prompt: PromptDraft) -> None:
        node = self.root.get("modelParameters")
        if node is None:
            return
        self.fidelity.seen(node)
        params: dict[str, Json] = {}
        for child in node.children():
            ours = _PARAMS.get(child.name)
            if ours is None or not is_param(ours, child.value):
                self.fidelity.unsupported(child, "no such parameter is known; see params.extra")
                continue
            params[ours] = child.value
            target = f"{self.setting.paths.prompts}/{self.name}.md params.{ours}"
            self.fidelity.mapped(child, target)
        if params:
            prompt.header["params"] = params

    def _format(self, prompt: PromptDraft) -> None:
        node, schema = self.root.get("responseFormat"), self.root.get("jsonSchema")
        target = f"{self.setting.paths.prompts}/{self.name}.md"
        kind = node.value if node is not None else None
        if node is not None and kind in ("json_object", "json_schema"):
            prompt.header["expect"] = "json"
            note = "" if kind == "json_schema" and schema is not None else (
                "the answer must be JSON; a provider's JSON mode is not asked for")  # fmt: skip
            status = Status.APPROXIMATED if note else Status.MAPPED
            self.fidelity.say(status, node, f"{target} expect: json", note)
        elif node is not None and kind == "text":
            self.fidelity.mapped(node, f"{target} expect: none")
        elif node is not None:
            self.fidelity.unsupported(node, "allowed: text, json_object, json_schema")
        if schema is not None:
            self._schema(schema, prompt, target)

    def _schema(self, node: Node, prompt: PromptDraft, target: str) -> None:
        value = node.value
        try:
            value = parse_json(value) if isinstance(value, str) else value
        except Fault as fault:
            self.fidelity.unsupported(node, fault.message)
            return
        inner = value.get("schema", value) if isinstance(value, dict) else None
        faults = list(schema_faults(inner, "the schema"))
        if not isinstance(inner, dict) or faults:
            note = faults[0].message if faults else "it is not a schema"
            self.fidelity.unsupported(node, note)
            return
        prompt.header["output"] = inner
        self.fidelity.mapped(
            node, f"{target} output", "its name and `strict` are left to the provider"
        )

    # --- cases ------------------------------------------------------------------------------------

    def _drafts(self, prompt: PromptDraft) -> list[Draft]:
        node = self.root.get("testData")
        found: list[Draft] = []
        children = list(node.children()) if node is not None else []
        if node is not None:
            self.fidelity.seen(node)
        for child in children:
            if not isinstance(child.value, dict):
                self.fidelity.unsupported(child, "a row of testData is a map")
                continue
            values = {
                name_of(key): value for key, value in child.value.items() if key != "expected"
            }
            expected = child.value.get("expected")
            if RENAMED["expected"] in prompt.variables and expected is not None:
                values[RENAMED["expected"]] = expected
            found.append(Draft(child, values, expected=expected, number=len(found) + 1))
            self.fidelity.mapped(child, "@dataset")
        if not found:
            found.append(Draft(self.root, {}))
            if prompt.variables:
                note = "there is no testData: the one case has empty variables; write your own"
                self.fidelity.at(Status.APPROXIMATED, self.root.where, "(no testData)", note)
        return found

    def _resolve(self) -> None:
        paths = self.setting.paths
        self.fidelity.resolve(
            {
                "@dataset": f"{paths.datasets}/{self.name}.jsonl",
                "@experiment": f"{paths.experiments}/{self.name}.yaml",
            }
        )


def stem_of(path: Path) -> str:
    """Return the name of a .prompt.yml without its endings."""
    return file_name(re.sub(r"\.prompt\.ya?ml\Z|\.ya?ml\Z", "", path.name), "imported")
