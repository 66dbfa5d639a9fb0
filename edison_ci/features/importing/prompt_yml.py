"""The importer of .prompt.yml files of GitHub Models."""

from __future__ import annotations

import re
from dataclasses import field, replace
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.config.user_schemas import schema_faults
from edison_ci.documents.json_text import parse_json
from edison_ci.documents.marks import Fault
from edison_ci.errors import UsageError
from edison_ci.features.importing.drafts import (
    CaseDraft,
    ConversionResult,
    GradeComponent,
    GraderText,
    Message,
    Names,
    PromptDraft,
    check_component,
    component_key,
    file_name,
    hole,
    model_name,
    unsupported,
)
from edison_ci.features.importing.experiments import Builder, CaseGroup, Graders, ImportSettings
from edison_ci.features.importing.fidelity import Fidelity, Status
from edison_ci.features.importing.output import (
    ImportResult,
    TargetProject,
    reads_back,
    render_files,
)
from edison_ci.features.importing.promptfoo import NothingImportedError
from edison_ci.features.importing.prompts import chat_messages, choices_message, grader_messages
from edison_ci.features.importing.providers import github_entry, is_param
from edison_ci.features.importing.source import Source
from edison_ci.features.importing.templates import (
    RENAMED,
    Argument,
    ConversionError,
    convert,
    variable_name,
)

if TYPE_CHECKING:
    from pathlib import Path

    from edison_ci.documents.marks import Json
    from edison_ci.features.importing.fidelity import Node


_STRINGS = {
    "equals": "equals",
    "contains": "icontains",
    "startsWith": "starts_with",
    "endsWith": "ends_with",
}
"""Checks of string evaluators: the first of these keys counts, and only `equals` minds case."""
_BUILT_IN = frozenset({"similarity", "relevance", "groundedness", "coherence", "fluency"})
_JUDGE = "openai/gpt-4o"
_KEPT = frozenset({"expected", "output"})
_COMPLETION = re.compile(r"\{\{-?\s*completion\s*-?\}\}")
_REGISTRY_PATH = re.compile(r"azureml://.*/models/([^/]+)")


@dataclass(slots=True)
class Evaluators:
    """Converts evaluators to components of the grade, and models of GitHub Models."""

    source: Source
    setting: TargetProject
    has_expected: bool = True
    """Whether a case has an expected output."""
    _models: dict[str, dict[str, Json]] = field(default_factory=dict)
    _judge: str = ""
    _spare: dict[str, dict[str, Json]] = field(default_factory=dict)
    """The entry of the judge, until it is needed."""

    @property
    def _fidelity(self) -> Fidelity:
        return self.source.fidelity

    def model(self, node: Node, id: str) -> str:
        """Return the name of the model with this id of GitHub Models."""
        if (in_registry := _REGISTRY_PATH.match(id)) is not None:
            id = f"openai/{in_registry[1]}"
        name = self._model_name(id)
        self._fidelity.add_approximated(
            node, f"{self.setting.paths.models} {name}", github_entry(id)[1]
        )
        return name

    def _model_name(self, id: str) -> str:
        return self._named(github_entry(id)[0], model_name(id.rpartition("/")[2]))

    def _named(self, entry: dict[str, Json], base: str) -> str:
        """Return the name of the model with this entry, which is added if it is new."""
        models = {**self.setting.models, **self._models}
        same = [name for name, other in models.items() if other == entry]
        if same:
            return same[0]
        name = Names(models).free(base)
        self._models[name] = entry
        return name

    def stand_in(self) -> str:
        """Return the name of a simulated model, for a file that names none."""
        return self._named({"provider": "sim", "model": "echo"}, "stand-in")

    def judge_name(self) -> str:
        """Return the name of the judge for graders that name no model."""
        if not self._judge:
            before = dict(self._models)
            self._judge = self.setting.judge or self._model_name(_JUDGE)
            self._spare = {k: v for k, v in self._models.items() if k not in before}
            for name in self._spare:
                del self._models[name]
        return self._judge

    def need_judge(self) -> None:
        """Add the judge to the models."""
        self._models |= self._spare

    def new_models(self) -> dict[str, dict[str, Json]]:
        """Return the entries to add to the registry."""
        return dict(self._models)

    def read(self, node: Node | None, prompt: PromptDraft) -> list[GradeComponent]:
        """Return the components of a list of evaluators, and report each."""
        if node is None:
            return []
        self._fidelity.mark_visited(node)
        components = []
        for child in node.children():
            self._fidelity.mark_visited(child)
            named = child.get("name")
            name = file_name(str(named.value), "evaluator") if named is not None else "evaluator"
            if named is not None:
                self._fidelity.add_mapped(named, "@experiment checks and judges.graders, name")
            for key in ("string", "llm", "uses"):
                inner = child.get(key)
                if inner is not None:
                    components += self._evaluator(inner, name, prompt)
        return components

    def _evaluator(self, node: Node, name: str, prompt: PromptDraft) -> list[GradeComponent]:
        if node.name == "string":
            self._fidelity.mark_visited(node)
            keys = {child.name for child in node.children() if str(child.value)}
            first = next((key for key in _STRINGS if key in keys), "")
            result = [(child, self._string(child, name, first)) for child in node.children()]
        elif node.name == "llm":
            result = [(node, self._llm(node, name))]
        else:
            result = [(node, self._built_in(node, name, prompt))]
        result = [(child, self._possible(outcome)) for child, outcome in result]
        for child, outcome in result:
            self._fidelity.add(outcome.status, child, outcome.about, outcome.note)
        return [outcome.component for _, outcome in result if outcome.component is not None]

    def _possible(self, result: ConversionResult) -> ConversionResult:
        """Return the result, or an unsupported one if no case has the expected output it needs."""
        if self.has_expected or result.component is None:
            return result
        texts = [str(argument.value) for argument in result.component.arguments]
        if (grader := result.component.grader) is not None:
            texts += [message.text for message in grader.messages]
        if not any("expected" in convert(text, keep=_KEPT).variables for text in texts):
            return result
        return unsupported("no row of testData has an expected output")

    def _string(self, node: Node, name: str, first: str) -> ConversionResult:
        ours = _STRINGS.get(node.name)
        if first and ours is not None and node.name != first:
            return ConversionResult(None, Status.MAPPED, f"without effect beside {first}")
        converted = convert(str(node.value), keep=_KEPT)
        if ours is None or converted.faults or not str(node.value):
            return unsupported("allowed: equals, contains, startsWith, endsWith")
        template = converted if converted.text_is_template else None
        options: dict[str, Json] = {"value": hole()}
        if ours in ("starts_with", "ends_with"):
            options["ignore_case"] = True
        result = check_component(ours, options, Argument(converted.text, template))
        assert result.component is not None
        component = replace(
            result.component,
            key=component_key([ours, name]),
            settings=(("name", name),),
            reference=False,
        )
        return result._replace(
            component=component, about=result.about.replace("@experiments", "@experiment")
        )

    def _llm(self, node: Node, name: str) -> ConversionResult:
        try:
            messages, passes_at = self._grader_messages(node)
        except ConversionError as refusal:
            return unsupported(refusal.note)
        model = node.get("modelId")
        by = self.model(model, str(model.value)) if model is not None else None
        note = "the grader replies with a score instead of a choice"
        return self._grader_result(GraderText(name, messages, by), name, note, passes_at)

    def _grader_messages(self, node: Node) -> tuple[tuple[Message, ...], float]:
        """Return the prompt of a grader, and the lowest score above 0, which passes."""
        prompt, system, choices = node.get("prompt"), node.get("systemPrompt"), node.get("choices")
        if prompt is None:
            raise ConversionError("it has no prompt")
        listed = []
        for child in choices.children() if choices is not None else ():
            choice, score = child.get("choice"), child.get("score")
            if choice is None or score is None or not isinstance(score.value, int | float):
                raise ConversionError("a choice must have a text and a score")
            if convert(str(choice.value)).text_is_template:
                raise ConversionError("a choice must be plain text")
            listed.append((str(choice.value), float(score.value)))
        if not listed or not all(0 <= score <= 1 for _, score in listed):
            raise ConversionError("its choices need scores from 0 to 1")
        texts = [("system", system)] if system is not None else []
        messages = []
        for role, part in [*texts, ("user", prompt)]:
            text = _COMPLETION.sub("{{ output }}", str(part.value))
            converted = convert(text, keep=_KEPT)
            if converted.faults:
                raise ConversionError(converted.faults[0].message)
            messages.append(Message(role, converted.text))
        last = messages[-1]
        messages[-1] = Message("user", f"{last.text.rstrip()}\n\n{choices_message(listed)}")
        return tuple(messages), min((score for _, score in listed if score > 0), default=1.0)

    def _built_in(self, node: Node, name: str, prompt: PromptDraft) -> ConversionResult:
        kind = str(node.value).removeprefix("github/")
        if kind not in _BUILT_IN or not str(node.value).startswith("github/"):
            return unsupported(f"unknown evaluator {str(node.value)!r}")
        asked = "\n\n".join(f"{{{{ {variable} }}}}" for variable in sorted(prompt.variables))
        messages = tuple(
            m._replace(text=m.text.replace("{{ input }}", asked or "(no variables)"))
            for m in grader_messages(kind)
        )
        return self._grader_result(
            GraderText(kind, messages, None), name, "a grader prompt of this tool"
        )

    def _grader_result(
        self, grader: GraderText, name: str, note: str, passes_at: float = 0.25
    ) -> ConversionResult:
        settings: tuple[tuple[str, Json], ...] = (("name", name), ("threshold", passes_at))
        key = component_key([grader.kind, grader.by, [list(m) for m in grader.messages], name])
        component = GradeComponent("grader", key, None, (), grader, settings)
        return ConversionResult(component, Status.APPROXIMATED, note, "@experiment judges.graders")


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
_UNKNOWN = "unknown key of a .prompt.yml file"


def import_prompt_yml(
    file: Path, *, display_folder: str, name: str, setting: TargetProject
) -> ImportResult:
    """Convert a .prompt.yml file, without writing anything."""
    fidelity = Fidelity()
    source = Source(file.parent, fidelity, display_folder)
    root = source.read_main(file.name)
    if not isinstance(root.value, dict):
        raise UsageError(
            f"{display_folder}{file.name} is not a YAML map", hint="name a .prompt.yml file"
        )
    return _Conversion(root, source, name, setting).run()


class _Conversion:
    """The conversion of one file."""

    def __init__(self, root: Node, source: Source, name: str, setting: TargetProject) -> None:
        self.root, self.source, self.name, self.setting = root, source, name, setting
        self.fidelity = source.fidelity
        self.evaluators = Evaluators(source, setting)

    def run(self) -> ImportResult:
        about = self._about()
        prompt = self._prompt()
        model = self._model()
        self._params(prompt)
        self._format(prompt)
        drafts = self._drafts(prompt)
        self.evaluators.has_expected = any(draft.expected is not None for draft in drafts)
        components = self.evaluators.read(self.root.get("evaluators"), prompt)
        for draft in drafts:
            draft.components = components
        paths = self.setting.paths
        judge = self.evaluators.judge_name()
        frame = ImportSettings(self.name, about, judge, 1, paths.datasets, paths.prompts)
        graders = Graders(self.name)
        group = CaseGroup((prompt.id,), (model,), drafts)
        experiment = Builder(frame, graders, self.fidelity, {prompt.id: prompt}).build(
            group, self.name
        )
        if not components:
            note = "without evaluators a case checks only that there is an answer"
            self.fidelity.add_at(Status.APPROXIMATED, self.root.where, "(no evaluators)", note)
        self.fidelity.report_unvisited(self.root.document, _UNKNOWN)
        self._resolve()
        if experiment.needs_judge:
            self.evaluators.need_judge()
        return ImportResult(
            self.name,
            str(about.get("description", "")),
            (self.name,),
            render_files(paths, [prompt, *graders.drafts.values()], [experiment]),
            self.evaluators.new_models(),
            model,
            judge if experiment.needs_judge else None,
            self.fidelity,
        )

    def _about(self) -> dict[str, Json]:
        about: dict[str, Json] = {}
        for key, ours in (("name", "title"), ("description", "description")):
            node = self.root.get(key)
            if node is not None:
                about[ours] = " ".join(str(node.value).split())[: 200 if ours == "title" else 1_000]
                self.fidelity.add_mapped(node, f"@experiment {ours}")
        text = str(about.get("description", ""))
        otherwise = f"Pass the checks imported for {self.name}."
        about["objective"] = text if len(text) >= 20 else otherwise
        return about

    def _model(self) -> str:
        node = self.root.get("model")
        if node is not None and isinstance(node.value, str):
            return self.evaluators.model(node, node.value)
        name = self.evaluators.stand_in()
        note = (
            f"it names no model: the simulated model {name} echoes the prompt until you name "
            "another under models"
        )
        self.fidelity.add_at(Status.APPROXIMATED, self.root.where, "(model)", note)
        return name

    def _prompt(self) -> PromptDraft:
        node = self.root.get("messages")
        if node is None or not isinstance(node.value, list):
            raise NothingImportedError("it has no messages", self.fidelity)
        listed = [message for message in node.value if not _is_empty_system(message)]
        try:
            messages = chat_messages(listed)
        except ConversionError as refusal:
            self.fidelity.add_unsupported(node, refusal.note)
            raise NothingImportedError("its messages are not supported", self.fidelity) from None
        names = frozenset(name for m in messages for name in convert(m.text).required)
        draft = PromptDraft(self.name, (), messages, {"expect": "none"}, names)
        if not reads_back(draft):
            self.fidelity.add_unsupported(
                node, "read back from a prompt file, its messages would differ"
            )
            raise NothingImportedError("its messages are not supported", self.fidelity)
        note = "" if len(listed) == len(node.value) else "an empty system message was dropped"
        self.fidelity.add_mapped(node, f"{self.setting.paths.prompts}/{self.name}.md", note)
        return draft

    def _params(self, prompt: PromptDraft) -> None:
        node = self.root.get("modelParameters")
        if node is None:
            return
        self.fidelity.mark_visited(node)
        params: dict[str, Json] = {}
        for child in node.children():
            ours = _PARAMS.get(child.name)
            if ours is None or not is_param(ours, child.value):
                self.fidelity.add_unsupported(
                    child, "unknown parameter; params.extra passes options to the provider"
                )
                continue
            params[ours] = child.value
            target = f"{self.setting.paths.prompts}/{self.name}.md params.{ours}"
            self.fidelity.add_mapped(child, target)
        if params:
            prompt.header["params"] = params

    def _format(self, prompt: PromptDraft) -> None:
        node, schema = self.root.get("responseFormat"), self.root.get("jsonSchema")
        target = f"{self.setting.paths.prompts}/{self.name}.md"
        kind = node.value if node is not None else None
        if node is not None and kind in ("json_object", "json_schema"):
            prompt.header["expect"] = "json"
            note = "" if kind == "json_schema" and schema is not None else (
                "the answer must be JSON; the JSON mode of the provider is not used")  # fmt: skip
            status = Status.APPROXIMATED if note else Status.MAPPED
            self.fidelity.add(status, node, f"{target} expect: json", note)
        elif node is not None and kind == "text":
            self.fidelity.add_mapped(node, f"{target} expect: none")
        elif node is not None:
            self.fidelity.add_unsupported(node, "allowed: text, json_object, json_schema")
        if schema is not None:
            self._schema(schema, prompt, target)

    def _schema(self, node: Node, prompt: PromptDraft, target: str) -> None:
        value = node.value
        try:
            value = parse_json(value) if isinstance(value, str) else value
        except Fault as fault:
            self.fidelity.add_unsupported(node, fault.message)
            return
        inner = value.get("schema", value) if isinstance(value, dict) else None
        faults = list(schema_faults(inner, "the schema"))
        if not isinstance(inner, dict) or faults:
            note = faults[0].message if faults else "it is not a JSON Schema"
            self.fidelity.add_unsupported(node, note)
            return
        prompt.header["output"] = inner
        self.fidelity.add_mapped(node, f"{target} output", "its name and `strict` are not imported")

    def _drafts(self, prompt: PromptDraft) -> list[CaseDraft]:
        node = self.root.get("testData")
        drafts: list[CaseDraft] = []
        children = list(node.children()) if node is not None else []
        if node is not None:
            self.fidelity.mark_visited(node)
        for child in children:
            if not isinstance(child.value, dict):
                self.fidelity.add_unsupported(child, "a row of testData must be a map")
                continue
            values = {
                variable_name(key): value for key, value in child.value.items() if key != "expected"
            }
            expected = child.value.get("expected")
            if RENAMED["expected"] in prompt.variables and expected is not None:
                values[RENAMED["expected"]] = expected
            drafts.append(CaseDraft(child, values, expected=expected, number=len(drafts) + 1))
            self.fidelity.add_mapped(child, "@dataset")
        if not drafts:
            drafts.append(CaseDraft(self.root, {}))
            if prompt.variables:
                note = "there is no testData: the only case has empty variables; add your own cases"
                self.fidelity.add_at(Status.APPROXIMATED, self.root.where, "(no testData)", note)
        return drafts

    def _resolve(self) -> None:
        paths = self.setting.paths
        self.fidelity.resolve(
            {
                "@dataset": f"{paths.datasets}/{self.name}.jsonl",
                "@experiment": f"{paths.experiments}/{self.name}.yaml",
            }
        )


def _is_empty_system(message: Json) -> bool:
    if not isinstance(message, dict) or message.get("role") != "system":
        return False
    content = message.get("content")
    return content is None or (isinstance(content, str) and not content.strip())


def import_stem(path: Path) -> str:
    """Return the name of an import: that of the .prompt.yml file without its suffixes."""
    return file_name(re.sub(r"\.prompt\.ya?ml\Z|\.ya?ml\Z", "", path.name), "imported")
