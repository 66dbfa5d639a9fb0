"""The importer of promptfoo configurations."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.documents.yaml_text import read_beside
from edison_ci.errors import UsageError
from edison_ci.features.importing.asserts import AssertionReader
from edison_ci.features.importing.drafts import CaseDraft, Message, ModelDraft, Names, file_name
from edison_ci.features.importing.experiments import Builder, Graders, ImportSettings, group_cases
from edison_ci.features.importing.fidelity import Fidelity, Status
from edison_ci.features.importing.output import (
    REAL_JUDGE,
    SIMULATED_JUDGE,
    ImportResult,
    TargetProject,
    apply_shared_options,
    render_files,
)
from edison_ci.features.importing.prompts import Prompts
from edison_ci.features.importing.providers import Providers
from edison_ci.features.importing.source import CODE_NOTE, Source
from edison_ci.features.importing.suite import PREFIX, SUFFIX, Suite
from edison_ci.features.importing.templates import convert
from edison_ci.numeric import counted

if TYPE_CHECKING:
    from pathlib import Path

    from edison_ci.documents.marks import Json
    from edison_ci.features.importing.drafts import PromptDraft
    from edison_ci.features.importing.experiments import ExperimentDraft
    from edison_ci.features.importing.fidelity import Node

_TABLES = read_beside(__file__, "promptfoo.yaml")
_UNKNOWN = "unknown key of promptfoo"


class NothingImportedError(UsageError):
    """Nothing of a configuration could be converted; the report says why."""

    def __init__(self, message: str, fidelity: Fidelity) -> None:
        super().__init__(message, hint="the report lists what was left out, and why")
        self.fidelity = fidelity


@dataclass(slots=True)
class _Options:
    repeats: int = 1
    limits: dict[str, Json] = field(default_factory=dict)


def import_promptfoo(
    file: Path, *, display_folder: str, name: str, setting: TargetProject, below: str = ""
) -> ImportResult:
    """Convert a promptfoo configuration, without writing anything.

    `below` is the place of its folder below the root whose files may be read too.
    """
    fidelity = Fidelity()
    source = Source(file.parent, fidelity, display_folder, below)
    root = source.read_main(file.name)
    if not isinstance(root.value, dict):
        raise UsageError(
            f"{display_folder}{file.name} is not a YAML map",
            hint="name a promptfooconfig.yaml file",
        )
    walk = _Conversion(root, source, name, setting)
    return walk.run()


class _Conversion:
    """The conversion of one configuration."""

    def __init__(self, root: Node, source: Source, name: str, setting: TargetProject) -> None:
        self.root, self.source, self.name, self.setting = root, source, name, setting
        self.fidelity = source.fidelity
        paths = setting.paths
        self.providers = Providers(
            source, paths.models, trust=setting.trust, existing=dict(setting.models)
        )
        self.prompts = Prompts(source, name, paths.prompts)
        self.options = _Options()

    def run(self) -> ImportResult:
        about = self._about()
        self._evaluate_options()
        models = self._models()
        prompts = self._prompts()
        drafts = self._drafts(models, prompts)
        self._affixes(prompts, drafts)
        self._report_echo(models, prompts)
        apply_shared_options(prompts, models)
        everything = list(self.providers.models.values())
        for model in everything:
            if self.options.limits:
                model.entry.setdefault("limits", dict(self.options.limits))
        judge = self._judge_name(models)
        experiments, graders = self._experiments(drafts, prompts, about, judge)
        self._leftovers(_UNKNOWN)
        entries = {m.name: m.entry for m in everything if m.name not in self.setting.models}
        needed = any(experiment.needs_judge for experiment in experiments)
        if needed:
            self._judge_entry(judge, models, entries)
        self._resolve(experiments)
        return ImportResult(
            self.name,
            str(about.get("description", "")),
            tuple(experiment.name for experiment in experiments),
            render_files(self.setting.paths, [*prompts, *graders], experiments),
            entries,
            models[0].name,
            judge if needed else None,
            self.fidelity,
        )

    def _about(self) -> dict[str, Json]:
        about: dict[str, Json] = {}
        description = self.root.get("description")
        text = " ".join(str(description.value).split()) if description is not None else ""
        if description is not None:
            about["description"] = text[:1_000]
            self.fidelity.add_mapped(description, "@experiments description, objective")
        objective = (
            text if 20 <= len(text) <= 2_000 else f"Pass the checks imported for {self.name}."
        )
        about["objective"] = objective
        tags = self.root.get("tags")
        if tags is not None and isinstance(tags.value, dict):
            names = [file_name(f"{key} {value}", "tag") for key, value in tags.value.items()]
            about["tags"] = list(dict.fromkeys(names))
            self.fidelity.add_mapped(tags, "@experiments tags")
        metadata = self.root.get("metadata")
        if metadata is not None:
            self.fidelity.add_unsupported(
                metadata, "experiments have tags, and cases have metadata"
            )
        for child in self.root.children():
            if child.name.startswith(("x-", "_", ".")):
                note = "definitions for references; they were imported where they are used"
                self.fidelity.add_mapped(child, "", note)
        for key, note in _TABLES["not_ours"].items():
            if (node := self.root.get(key)) is not None:
                self.fidelity.add_unsupported(node, note or CODE_NOTE)
        for key, note in _TABLES["no_matter"].items():
            if (node := self.root.get(key)) is not None:
                self.fidelity.add_approximated(node, "", note)
        return about

    def _evaluate_options(self) -> None:
        node = self.root.get("evaluateOptions")
        if node is None:
            return
        self.fidelity.mark_visited(node)
        for child in node.children():
            value = child.value
            number = isinstance(value, int | float) and not isinstance(value, bool) and value >= 1
            if child.name == "repeat" and number:
                self.options.repeats = min(int(value), 100)  # type: ignore[arg-type]  # a number
                self.fidelity.add_mapped(child, "@experiments repeats")
            elif child.name == "maxConcurrency" and number:
                self.options.limits["concurrency"] = min(int(value), 1_000)  # type: ignore[arg-type]
                note = "a limit of each model, not of all models together"
                self.fidelity.add_approximated(child, f"{self.setting.paths.models} limits", note)
            elif child.name == "timeoutMs" and number:
                seconds = min(max(float(value) / 1000, 1), 3_600)  # type: ignore[arg-type]
                self.options.limits["timeout_s"] = seconds
                self.fidelity.add_mapped(child, f"{self.setting.paths.models} limits")
            else:
                self.fidelity.add_unsupported(
                    child, "see `edison run --help` for the options of a run"
                )

    def _models(self) -> list[ModelDraft]:
        node = self.root.get("providers") or self.root.get("targets")
        models = self.providers.read(node) if node is not None else []
        if distinct := list({model.name: model for model in models}.values()):
            return distinct
        if node is not None and not self.providers.has_text:
            raise self._stop("none of its providers is supported")
        stand_in = self.providers.stand_in()
        note = (
            f"none of its providers is supported: the simulated model {stand_in.name} echoes the "
            "prompt until you name another under models"
        )
        where = self.root.where if node is None else node.where
        self.fidelity.add_at(Status.APPROXIMATED, where, "(model)", note)
        return [stand_in]

    def _prompts(self) -> list[PromptDraft]:
        node = self.root.get("prompts")
        if node is None:
            self.prompts.pass_through()
        else:
            followed = self.source.follow(node) if _is_list_file(node) else node
            if followed is not None:
                self.prompts.read(followed)
        if not self.prompts.drafts:
            raise self._stop("none of its prompts is supported")
        return self.prompts.drafts

    def _affixes(self, prompts: list[PromptDraft], drafts: list[CaseDraft]) -> None:
        """Add the prefixes and suffixes of tests to the prompts."""
        for name in (PREFIX, SUFFIX):
            texts = {str(draft.variables.get(name, "")) for draft in drafts}
            if texts == {""}:
                continue
            (text,) = texts if len(texts) == 1 else (f"{{{{ {name} }}}}",)
            if len(texts) == 1 and not convert(text).text_is_template:
                for draft in drafts:  # the same for all cases, so part of the prompt
                    draft.variables.pop(name, None)
            else:
                text = f"{{{{ {name} }}}}"
            for prompt in prompts:
                last = prompt.messages[-1]
                whole = text + last.text if name == PREFIX else last.text.rstrip() + text
                prompt.messages[-1] = Message(last.role, whole)
                prompt.variables |= convert(text).variables

    def _report_echo(self, models: list[ModelDraft], prompts: list[PromptDraft]) -> None:
        """Report that promptfoo echoes a chat as JSON, with all of its messages."""
        echoes = any(model.entry.get("model") == "echo" for model in models)
        if echoes and any(len(prompt.messages) > 1 for prompt in prompts):
            note = "it answers with the last message of a chat; promptfoo's with the JSON of all"
            self.fidelity.add_at(Status.APPROXIMATED, self.root.where, "(echo)", note)

    def _drafts(self, models: list[ModelDraft], prompts: list[PromptDraft]) -> list[CaseDraft]:
        suite = Suite(self.source, AssertionReader(self.source, self.providers), models, prompts)
        default, tests = self.root.get("defaultTest"), self.root.get("tests")
        scenarios = self.root.get("scenarios")
        if default is not None:
            suite.default(default)
        if tests is not None:
            suite.tests(tests)
        if scenarios is not None:
            suite.scenarios(scenarios)
        if tests is None and scenarios is None:
            suite.add_default_case(self.root)
        for node in suite.for_graders:
            if not self.fidelity.is_reported(node):
                self.fidelity.add_mapped(node, "", "no imported assertion uses it")
        if not suite.drafts:
            raise self._stop("none of its tests is supported")
        return suite.drafts

    def _experiments(
        self,
        drafts: list[CaseDraft],
        prompts: list[PromptDraft],
        about: dict[str, Json],
        judge: str,
    ) -> tuple[list[ExperimentDraft], list[PromptDraft]]:
        paths = self.setting.paths
        repeats = self.options.repeats
        frame = ImportSettings(
            self.name, about, judge, repeats, paths.datasets, paths.prompts, all_must_pass=True
        )
        graders, names = Graders(self.name), Names()
        groups = group_cases(drafts, prompts, list(self.providers.models.values()), self.fidelity)
        experiments = []
        for group in groups:
            builder = Builder(frame, graders, self.fidelity, {p.id: p for p in prompts})
            experiments.append(builder.build(group, names.free(self.name)))
        if not experiments:
            raise self._stop("no test has both a prompt and a model")
        if any(not draft.components and not draft.dropped for draft in drafts):
            note = "a test without assertions checks only that there is an answer"
            where = self.root.where
            self.fidelity.add_at(Status.APPROXIMATED, where, "(no assertions)", note)
        lost = sum(draft.dropped for draft in drafts)
        if lost:
            note = f"no assertion of {counted(lost, 'case')} is supported: they are not graded"
            self.fidelity.add_at(Status.APPROXIMATED, self.root.where, "(not graded)", note)
        return experiments, list(graders.drafts.values())

    def _judge_name(self, models: list[ModelDraft]) -> str:
        if self.setting.judge is not None and not all(model.offline for model in models):
            return self.setting.judge
        judge = SIMULATED_JUDGE if all(model.offline for model in models) else REAL_JUDGE
        same = [name for name, entry in self.setting.models.items() if entry == judge]
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
        note = f"the configuration names no grading model, so {judge} is used: {what}"
        self.fidelity.add_at(Status.APPROXIMATED, self.root.where, "(judge)", note)

    def _stop(self, why: str) -> NothingImportedError:
        """Return the error that ends the import; what follows was not reached."""
        self._leftovers(f"not reached: {why}")
        return NothingImportedError(why, self.fidelity)

    def _leftovers(self, why: str) -> None:
        for document in self.source.documents():
            self.fidelity.report_unvisited(document, why)

    def _resolve(self, experiments: list[ExperimentDraft]) -> None:
        paths = self.setting.paths
        for experiment in experiments:
            self.fidelity.record_target(self.root, experiment.name)
        self.fidelity.resolve(
            {
                "@datasets": f"{paths.datasets}/*.jsonl",
                "@experiments": f"{paths.experiments}/*.yaml",
                **self.providers.places(),
            }
        )


def _is_list_file(node: Node) -> bool:
    """Whether `prompts` names a file with a list of prompts."""
    value = node.value
    return (
        isinstance(value, str) and value.startswith("file://") and value.endswith((".yaml", ".yml"))
    )
