"""The importer of promptfoo configurations."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.errors import UsageError
from edison_ci.importing.asserts import Asserts
from edison_ci.importing.drafts import Draft, Message, ModelDraft, Names, file_name
from edison_ci.importing.experiments import Builder, Frame, Graders
from edison_ci.importing.fidelity import Fidelity, Status
from edison_ci.importing.grouping import grouped
from edison_ci.importing.imported import (
    REAL_JUDGE,
    SIMULATED_JUDGE,
    Imported,
    Setting,
    files_of,
    share,
)
from edison_ci.importing.prompts import Prompts
from edison_ci.importing.providers import Providers
from edison_ci.importing.source import CODE_NOTE, Source
from edison_ci.importing.suite import PREFIX, SUFFIX, Suite
from edison_ci.importing.templates import convert

if TYPE_CHECKING:
    from pathlib import Path

    from edison_ci.documents.marks import Json
    from edison_ci.importing.drafts import PromptDraft
    from edison_ci.importing.experiments import Laid
    from edison_ci.importing.fidelity import Node

_NOT_OURS = {
    "env": "values of variables are not copied; set them in the environment",
    "outputPath": "results are in .edison/results.db; see edison status and edison report",
    "sharing": "nothing is shared; results stay on this machine",
    "extensions": CODE_NOTE,
    "nunjucksFilters": CODE_NOTE,
    "derivedMetrics": "metrics are not computed from others; views of the database can",
    "commandLineOptions": "give options on the command line, or as EDISON_ variables",
    "redteam": "attacks are not generated; list them as cases of kind adversarial",
    "tracing": "there are no traces of agents",
    "writeLatestResults": "every result is kept",
}
_UNKNOWN = "no such key of promptfoo is known here"


class NothingImportedError(UsageError):
    """A configuration of which nothing can be run here; the report says why."""

    def __init__(self, message: str, fidelity: Fidelity) -> None:
        super().__init__(message, hint="the report says what was left out, and why")
        self.fidelity = fidelity


@dataclass(slots=True)
class _Options:
    draws: int = 1
    limits: dict[str, Json] = field(default_factory=dict)


def import_promptfoo(file: Path, *, shown: str, name: str, setting: Setting) -> Imported:
    """Return what a configuration becomes; nothing is written."""
    fidelity = Fidelity()
    source = Source(file.parent, fidelity, shown)
    root = source.main(file.name)
    if not isinstance(root.value, dict):
        raise UsageError(f"{shown}{file.name} is not a map", hint="give a promptfooconfig.yaml")
    walk = _Walk(root, source, name, setting)
    return walk.imported()


class _Walk:
    """Goes through a configuration once."""

    def __init__(self, root: Node, source: Source, name: str, setting: Setting) -> None:
        self.root, self.source, self.name, self.setting = root, source, name, setting
        self.fidelity = source.fidelity
        paths = setting.paths
        self.providers = Providers(
            source, paths.models, trust=setting.trust, existing=dict(setting.models)
        )
        self.prompts = Prompts(source, name, paths.prompts)
        self.options = _Options()

    def imported(self) -> Imported:
        about = self._about()
        self._evaluate_options()
        models = self._models()
        prompts = self._prompts()
        drafts = self._drafts(models, prompts)
        self._affixes(prompts, drafts)
        share(prompts, models)
        everything = list(self.providers.models.values())
        for model in everything:
            if self.options.limits:
                model.entry.setdefault("limits", dict(self.options.limits))
        judge = self._judge_name(models)
        laid, graders = self._experiments(drafts, prompts, about, judge)
        self._leftovers()
        entries = {m.name: m.entry for m in everything if m.name not in self.setting.models}
        needed = any(each.needs_judge for each in laid)
        if needed:
            self._judge_entry(judge, models, entries)
        self._resolve(laid)
        return Imported(
            self.name,
            str(about.get("description", "")),
            tuple(each.name for each in laid),
            files_of(self.setting.paths, [*prompts, *graders], laid),
            entries,
            models[0].name,
            judge if needed else None,
            self.fidelity,
        )

    # --- what it is about -------------------------------------------------------------------------

    def _about(self) -> dict[str, Json]:
        found: dict[str, Json] = {}
        description = self.root.get("description")
        text = " ".join(str(description.value).split()) if description is not None else ""
        if description is not None:
            found["description"] = text[:1_000]
            self.fidelity.mapped(description, "@experiments description, objective")
        objective = (
            text if 20 <= len(text) <= 2_000 else f"Pass the checks imported for {self.name}."
        )
        found["objective"] = objective
        tags = self.root.get("tags")
        if tags is not None and isinstance(tags.value, dict):
            names = [file_name(f"{key} {value}", "tag") for key, value in tags.value.items()]
            found["tags"] = list(dict.fromkeys(names))
            self.fidelity.mapped(tags, "@experiments tags")
        metadata = self.root.get("metadata")
        if metadata is not None:
            self.fidelity.unsupported(metadata, "an experiment has tags, and cases metadata")
        for child in self.root.children():
            if child.name.startswith(("x-", "_", ".")):
                note = "a place for what others refer to; that was taken over where it is used"
                self.fidelity.mapped(child, "", note)
        for key, note in _NOT_OURS.items():
            node = self.root.get(key)
            if node is not None:
                self.fidelity.unsupported(node, note)
        return found

    def _evaluate_options(self) -> None:
        node = self.root.get("evaluateOptions")
        if node is None:
            return
        self.fidelity.seen(node)
        for child in node.children():
            value = child.value
            number = isinstance(value, int | float) and not isinstance(value, bool) and value >= 1
            if child.name == "repeat" and number:
                self.options.draws = min(int(value), 100)  # type: ignore[arg-type]  # a number
                self.fidelity.mapped(child, "@experiments draws")
            elif child.name == "maxConcurrency" and number:
                self.options.limits["concurrency"] = min(int(value), 1_000)  # type: ignore[arg-type]
                note = "a limit of each model, not of all together"
                self.fidelity.approximated(child, f"{self.setting.paths.models} limits", note)
            elif child.name == "timeoutMs" and number:
                seconds = min(max(float(value) / 1000, 1), 3_600)  # type: ignore[arg-type]
                self.options.limits["timeout_s"] = seconds
                self.fidelity.mapped(child, f"{self.setting.paths.models} limits")
            else:
                self.fidelity.unsupported(child, "see edison run --help for what a run can be told")

    # --- models and prompts -----------------------------------------------------------------------

    def _models(self) -> list[ModelDraft]:
        node = self.root.get("providers") or self.root.get("targets")
        models = self.providers.read(node) if node is not None else []
        found = list({model.name: model for model in models}.values())
        if not found:
            self._leftovers()
            raise NothingImportedError("none of its providers is a model here", self.fidelity)
        return found

    def _prompts(self) -> list[PromptDraft]:
        node = self.root.get("prompts")
        if node is None:
            self.prompts.pass_through()
        else:
            followed = self.source.follow(node) if _is_list_file(node) else node
            if followed is not None:
                self.prompts.read(followed)
        found = self.prompts.drafts
        if not found:
            self._leftovers()
            raise NothingImportedError("none of its prompts can be said here", self.fidelity)
        return found

    def _affixes(self, prompts: list[PromptDraft], drafts: list[Draft]) -> None:
        """Let the prompts start and end with what tests put there."""
        for name in (PREFIX, SUFFIX):
            texts = {str(draft.variables.get(name, "")) for draft in drafts}
            if texts == {""}:
                continue
            (text,) = texts if len(texts) == 1 else (f"{{{{ {name} }}}}",)
            if len(texts) == 1 and not convert(text).text_is_template:
                for draft in drafts:  # the same for all, so it belongs to the prompt
                    draft.variables.pop(name, None)
            else:
                text = f"{{{{ {name} }}}}"
            for prompt in prompts:
                last = prompt.messages[-1]
                whole = text + last.text if name == PREFIX else last.text.rstrip() + text
                prompt.messages[-1] = Message(last.role, whole)
                prompt.variables |= convert(text).variables

    # --- cases and experiments --------------------------------------------------------------------

    def _drafts(self, models: list[ModelDraft], prompts: list[PromptDraft]) -> list[Draft]:
        suite = Suite(self.source, Asserts(self.source, self.providers), models, prompts)
        default, tests = self.root.get("defaultTest"), self.root.get("tests")
        scenarios = self.root.get("scenarios")
        if default is not None:
            suite.default(default)
        if tests is not None:
            suite.tests(tests)
        if scenarios is not None:
            suite.scenarios(scenarios)
        if tests is None and scenarios is None:
            suite.only_the_default(self.root)
        for node in suite.for_graders:
            if not self.fidelity.is_told(node):
                self.fidelity.unsupported(node, "no assertion that could be taken over uses it")
        if not suite.drafts:
            self._leftovers()
            raise NothingImportedError("none of its tests is a case here", self.fidelity)
        return suite.drafts

    def _experiments(
        self, drafts: list[Draft], prompts: list[PromptDraft], about: dict[str, Json], judge: str
    ) -> tuple[list[Laid], list[PromptDraft]]:
        paths = self.setting.paths
        frame = Frame(self.name, about, judge, self.options.draws, paths.datasets, paths.prompts)
        graders, names = Graders(self.name), Names()
        groups = grouped(drafts, prompts, list(self.providers.models.values()), self.fidelity)
        laid = []
        for group in groups:
            builder = Builder(frame, graders, self.fidelity, {p.id: p for p in prompts})
            laid.append(builder.lay(group, names.free(self.name)))
        if not laid:
            self._leftovers()
            raise NothingImportedError("no test goes with a prompt and a model", self.fidelity)
        if any(not draft.parts for draft in drafts):
            note = "a test without assertions only checks here that there is an answer"
            where = self.root.where
            self.fidelity.at(Status.APPROXIMATED, where, "(no assertions)", note)
        return laid, list(graders.drafts.values())

    # --- who judges -------------------------------------------------------------------------------

    def _judge_name(self, models: list[ModelDraft]) -> str:
        if self.setting.judge is not None and not all(model.offline for model in models):
            return self.setting.judge
        wanted = SIMULATED_JUDGE if all(model.offline for model in models) else REAL_JUDGE
        same = [name for name, entry in self.setting.models.items() if entry == wanted]
        taken = {*self.providers.models, *self.setting.models}
        return same[0] if same else Names(taken).free("judge")

    def _judge_entry(
        self, judge: str, models: list[ModelDraft], entries: dict[str, dict[str, Json]]
    ) -> None:
        if judge in self.setting.models:
            return
        simulated = all(model.offline for model in models)
        entries[judge] = dict(SIMULATED_JUDGE if simulated else REAL_JUDGE)
        what = "simulated, as the models are" if simulated else f"{REAL_JUDGE['model']} of OpenAI"
        note = f"no model is named that grades; {judge} of the registry does: {what}. Choose yours"
        self.fidelity.at(Status.APPROXIMATED, self.root.where, "(judge)", note)

    # --- the report -------------------------------------------------------------------------------

    def _leftovers(self) -> None:
        for document in self.source.documents():
            self.fidelity.leftovers(document, _UNKNOWN)

    def _resolve(self, laid: list[Laid]) -> None:
        paths = self.setting.paths
        for each in laid:
            self.fidelity.went(self.root, each.name)
        self.fidelity.resolve(
            {
                "@datasets": f"{paths.datasets}/*.jsonl",
                "@experiments": f"{paths.experiments}/*.yaml",
                **self.providers.places(),
            }
        )


def _is_list_file(node: Node) -> bool:
    """Whether prompts names a file that lists prompts."""
    value = node.value
    return (
        isinstance(value, str) and value.startswith("file://") and value.endswith((".yaml", ".yml"))
    )
