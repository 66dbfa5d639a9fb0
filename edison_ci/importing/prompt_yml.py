"""What is a .prompt.yml of GitHub Models as a project of ours?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from edison_ci.config.schemas_of_users import schema_faults
from edison_ci.documents.json_text import parse_json
from edison_ci.documents.marks import Fault
from edison_ci.errors import UsageError
from edison_ci.importing.drafts import Draft, PromptDraft, file_name
from edison_ci.importing.evaluators import Evaluators
from edison_ci.importing.experiments import Builder, Frame, Graders
from edison_ci.importing.fidelity import Fidelity, Status
from edison_ci.importing.grouping import Group
from edison_ci.importing.imported import Imported, Setting, files_of
from edison_ci.importing.prompt_files import reads_back
from edison_ci.importing.promptfoo import NothingImportedError
from edison_ci.importing.prompts import Refusal, messages_of
from edison_ci.importing.providers import is_param
from edison_ci.importing.source import Source
from edison_ci.importing.templates import RENAMED, convert
from edison_ci.importing.variables import name_of

if TYPE_CHECKING:
    from pathlib import Path

    from edison_ci.documents.marks import Json
    from edison_ci.importing.fidelity import Node

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
