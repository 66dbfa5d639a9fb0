"""Files of an import: their text, the checks before they are written, and the report."""

from __future__ import annotations

import json
import os
import posixpath
import re
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.config.load import inspect_project
from edison_ci.config.model_entry import OFFLINE
from edison_ci.config.prices import load_prices
from edison_ci.config.project import Paths, slug
from edison_ci.config.project_files import PROJECT, ProjectFiles, only_errors
from edison_ci.config.prompt import read_prompt
from edison_ci.config.trust import TrustFile
from edison_ci.config.validation import DataCheck
from edison_ci.config.vendors import vendor_at
from edison_ci.documents.files import OverlayTree, WorkingTree, make_folder
from edison_ci.errors import ConfigError, UsageError
from edison_ci.features.importing.drafts import Message, file_name
from edison_ci.features.importing.fidelity import Status
from edison_ci.resources import resource_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from edison_ci.documents.files import Tree
    from edison_ci.documents.marks import Json
    from edison_ci.errors import Location, Problem
    from edison_ci.features.importing.drafts import ModelDraft, PromptDraft
    from edison_ci.features.importing.experiments import ExperimentDraft
    from edison_ci.features.importing.fidelity import Fidelity


_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./+ -]*(?<! )\Z")
_LINE = re.compile(r"[A-Za-z_][A-Za-z0-9_./+,;'()!? -]*(?<! )\Z")
"""Strings that need no quotes outside of brackets."""
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
"""Words that some YAML parsers do not read as strings."""
_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_BLOCK = re.compile("[\t\x20-\x7e\n\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]+\\Z")
_WIDTH = 96


def yaml_text(value: dict[str, Json]) -> str:
    """Return a map as a YAML document."""
    return "".join(f"{line}\n" for line in _mapping(value, ""))


def _mapping(value: dict[str, Json], indent: str) -> Iterator[str]:
    for key, item in value.items():
        yield from _entry(f"{indent}{yaml_scalar(key)}:", item, indent)


def _entry(start: str, item: Json, indent: str) -> Iterator[str]:
    """Yield the lines of a value that follows a key or a dash."""
    if isinstance(item, str) and "\n" in item:
        yield from _text(start, item, indent)
        return
    flow = None if _is_table(item) or isinstance(item, str) else _flow_style(item)
    if flow is not None and len(start) + 1 + len(flow) <= _WIDTH:
        yield f"{start} {flow}"
    elif isinstance(item, dict):
        yield start
        yield from _mapping(item, f"{indent}  ")
    elif isinstance(item, list):
        yield start
        yield from _sequence(item, f"{indent}  ")
    elif isinstance(item, str) and _LINE.match(item) and item.lower() not in _WORDS:
        yield f"{start} {item}"
    else:
        yield f"{start} {yaml_scalar(item)}"


def _is_table(item: Json) -> bool:
    """Whether a value is a list of maps, which is more readable in block style."""
    return isinstance(item, list) and any(isinstance(entry, dict) for entry in item)


def _sequence(value: list[Json], indent: str) -> Iterator[str]:
    for item in value:
        if isinstance(item, dict) and item:
            lines = list(_mapping(item, f"{indent}  "))
            flow = _flow_style(item)
            short = len(item) > 1 and flow is not None and len(indent) + len(flow) + 2 <= _WIDTH
            lines = [f"{indent}  {flow}"] if short else lines
            yield f"{indent}- {lines[0][len(indent) + 2 :]}"
            yield from lines[1:]
        else:
            yield from _entry(f"{indent}-", item, f"{indent}  ")


def _text(start: str, text: str, indent: str) -> Iterator[str]:
    """Yield a text of several lines as a block scalar, if that can represent it."""
    lines = text.removesuffix("\n").split("\n")
    fits = (
        _BLOCK.match(text)
        and lines[0].strip()
        and lines[-1].strip()
        and not lines[0].startswith((" ", "\t"))
    )
    if not fits:
        yield f"{start} {yaml_scalar(text)}"
        return
    yield f"{start} {'|' if text.endswith(chr(10)) else '|-'}"
    yield from (f"{indent}  {line}" if line else "" for line in lines)


def _flow_style(value: Json) -> str | None:
    """Return a value on one line; None if it contains a text of several lines."""
    if isinstance(value, dict):
        pairs = [(yaml_scalar(key), _flow_style(item)) for key, item in value.items()]
        if any(item is None for _, item in pairs):
            return None
        return "{" + ", ".join(f"{key}: {item}" for key, item in pairs) + "}"
    if isinstance(value, list):
        items = [_flow_style(item) for item in value]
        return None if None in items else "[" + ", ".join(map(str, items)) + "]"
    if isinstance(value, str) and "\n" in value:
        return None
    return yaml_scalar(value)


def yaml_scalar(value: Json) -> str:
    """Return a string, number, boolean or null on one line."""
    if not isinstance(value, str):
        return json.dumps(value)
    if _PLAIN.match(value) and value.lower() not in _WORDS:
        return value
    quoted = json.dumps(value, ensure_ascii=False)
    return _ESCAPED.sub(lambda match: f"\\u{ord(match.group()):04x}", quoted)


_HEADING = re.compile(r"(?m)^(\\?# (?:system|user|assistant)\s*)$")


def prompt_text(draft: PromptDraft) -> str:
    """Return the text of a prompt file."""
    header: dict[str, Json] = {"id": draft.id, **draft.header}
    parts = [f"---\n{yaml_text(header)}---\n"]
    for message in draft.messages:
        body = _HEADING.sub(r"\\\1", trim(message.text))
        heading = (
            "" if len(draft.messages) == 1 and message.role == "user" else f"# {message.role}\n"
        )
        parts.append(f"{heading}{body}\n")
    return "\n".join(parts)


def reads_back(draft: PromptDraft) -> bool:
    """Whether the prompt reader returns the same messages for the file."""
    prompt, _ = read_prompt(prompt_text(draft).encode(), f"{draft.id}.md")
    if prompt is None:
        return False
    sections = [(section.role, section.template.source) for section in prompt.sections]
    return sections == [(m.role, trim(m.text)) for m in draft.messages]


def trim(text: str) -> str:
    """Return a text without leading blank lines and trailing white space."""
    return re.sub(r"\A(?:[^\S\n]*\n)+", "", text.replace("\r\n", "\n")).rstrip()


SIMULATED_JUDGE: dict[str, Json] = {"provider": "sim", "model": "judge"}
REAL_JUDGE: dict[str, Json] = {
    "provider": "openai",
    "model": "gpt-4.1",
    "key_env": "OPENAI_API_KEY",
}


@dataclass(frozen=True, slots=True)
class TargetProject:
    """The settings of the project that receives an import."""

    paths: Paths
    models: dict[str, Json] = field(default_factory=dict)
    """Entries of the existing registry."""
    judge: str | None = None
    """Its default judge."""
    trust: TrustFile = field(default_factory=TrustFile.model_construct)


@dataclass(frozen=True, slots=True)
class ImportResult:
    """The result of an import: files, and the models that they need."""

    name: str
    description: str
    experiments: tuple[str, ...]
    files: dict[str, str]
    models: dict[str, dict[str, Json]]
    model: str
    """The first model that generates."""
    judge: str | None
    fidelity: Fidelity


def render_files(
    paths: Paths, prompts: Iterable[PromptDraft], experiments: Iterable[ExperimentDraft]
) -> dict[str, str]:
    """Return the texts of prompts, experiments and datasets by path."""
    files = {f"{paths.prompts}/{draft.id}.md": prompt_text(draft) for draft in prompts}
    schema = schema_line(paths.experiments, "experiment")
    for draft in experiments:
        files[f"{paths.experiments}/{draft.name}.yaml"] = schema + yaml_text(draft.experiment)
        rows = (json.dumps(row, ensure_ascii=False) for row in draft.rows)
        files[f"{paths.datasets}/{draft.name}.jsonl"] = "".join(f"{row}\n" for row in rows)
    return files


def schema_line(folder: str, kind: str) -> str:
    """Return the line that names the schema of a file, for editors."""
    up = "../" * len([part for part in folder.split("/") if part not in ("", ".")])
    return f"# yaml-language-server: $schema={up}.edison/schemas/{kind}.schema.json\n"


def apply_shared_options(prompts: Iterable[PromptDraft], models: Iterable[ModelDraft]) -> None:
    """Add the schemas and tools of models to the headers of prompts, and their instructions."""
    for model in models:
        for prompt in prompts:
            for name, value in model.shared.items():
                if name != "system":
                    prompt.header.setdefault(name, value)
                elif prompt.messages[0].role != "system":
                    prompt.messages.insert(0, Message("system", str(value)))


_INDEX = re.compile(r"\[\d+\]")


class ReportLine(NamedTuple):
    """Keys that were converted in the same way, as one line of the report."""

    status: Status
    where: Location
    """The location of the first one."""
    key: str
    times: int
    target: str
    note: str

    def __str__(self) -> str:
        several = f" ({self.times:,} times)" if self.times > 1 else ""
        target = f" -> {self.target}" if self.target else ""
        note = f": {self.note}" if self.note else ""
        return f"{self.where}  {self.key}{several}{target}{note}"


def report_lines(fidelity: Fidelity, status: Status) -> list[ReportLine]:
    """Return the lines of the report for a status, similar keys together."""
    lines: dict[tuple[str, str, str, str], ReportLine] = {}
    for entry in fidelity.sorted_entries():
        if entry.status is not status:
            continue
        general = _INDEX.sub("[]", entry.key)
        group = (entry.where.file, general, entry.target, entry.note)
        similar = lines.get(group)
        if similar is None:
            line = ReportLine(status, entry.where, entry.key, 1, entry.target, entry.note)
        else:
            line = similar._replace(key=general, times=similar.times + 1)
        lines[group] = line
    return list(lines.values())


def report_markdown(title: str, fidelities: Iterable[Fidelity], files: Iterable[str]) -> str:
    """Return the report as Markdown."""
    reports = list(fidelities)
    parts = [f"# {title}\n"]
    for status in (Status.UNSUPPORTED, Status.APPROXIMATED, Status.MAPPED):
        entries = [e for report in reports for e in report.sorted_entries() if e.status is status]
        parts.append(f"## {status.capitalize()} ({len(entries)})\n")
        if entries:
            parts.append("| location | key | target | note |\n| --- | --- | --- | --- |")
            rows = ((str(e.where), e.key, e.target, e.note) for e in entries)
            parts += [f"| {' | '.join(map(_cell, row))} |" for row in rows]
            parts.append("")
    parts.append("## Files\n")
    parts += [f"- `{name}`" for name in files]
    return "\n".join(parts) + "\n"


def _cell(text: str) -> str:
    plain = re.sub(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]", " ", text)
    return re.sub(r"([|<>`\\*_\[\]])", r"\\\1", plain)


def import_name(path: Path) -> str:
    """Return the name of an import: the stem of the file, or the name of its folder."""
    stem = path.name.partition(".")[0]
    if stem.lower() in ("promptfooconfig", "prompt", "config", ""):
        stem = path.resolve().parent.name
    return file_name(stem, "imported")


@dataclass(frozen=True, slots=True)
class ImportTarget:
    """The folder of an import, and the settings of its project."""

    root: Path
    setting: TargetProject
    is_project: bool


def find_target(root: Path) -> ImportTarget:
    """Return the target of an import; raises ConfigError if its project is not valid."""
    if root.exists() and not root.is_dir():
        raise UsageError(f"{str(root)!r} is a file, not a folder", hint="name a folder with --into")
    if not (root / PROJECT).is_file():
        trust = ProjectFiles(WorkingTree(root)).trust()
        return ImportTarget(root, TargetProject(Paths.model_construct(), trust=trust), False)
    files = ProjectFiles(WorkingTree(root))
    header = files.project()
    trust = files.trust()
    if header is None:
        raise ConfigError(only_errors(files.problems))
    files.models(header.paths.models)
    document = files.documents.get(header.paths.models)
    value = document.value if document is not None else {}
    models = {k: v for k, v in value.items() if k != "version"} if isinstance(value, dict) else {}
    judge = header.defaults.judge
    return ImportTarget(root, TargetProject(header.paths, models, judge, trust), True)


@dataclass(frozen=True, slots=True)
class ImportPlan:
    """The files to write, and the warnings of the loader about them."""

    target: ImportTarget
    files: dict[str, str]
    warnings: tuple[Problem, ...] = ()

    def write(self) -> None:
        """Write the files; existing ones are not touched, and after a failure none remains."""
        written: list[Path] = []
        try:
            for name, text in self.files.items():
                written.append(_write_file(self.target.root, name, text))
        except BaseException:
            for path in written:
                with suppress(OSError):
                    path.unlink()
            raise


def plan_import(target: ImportTarget, imports: Sequence[ImportResult]) -> ImportPlan:
    """Return the files of imports, checked by the loader of projects.

    Raises UsageError if one of them exists or a model is missing from the registry, and
    ConfigError if the project would not be valid.
    """
    files: dict[str, str] = {}
    for result in imports:
        for path, text in result.files.items():
            if files.setdefault(path, text) != text:
                raise UsageError(
                    f"two imports would write {path}",
                    hint="import them one by one, with --name",
                )
    files |= _shared_files(target, imports)
    existing = [path for path in files if os.path.lexists(target.root / path)]
    if existing:
        more = f" and {len(existing) - 1} more" if len(existing) > 1 else ""
        raise UsageError(
            f"{existing[0]}{more} exists already; nothing was written",
            hint="choose another name with --name, or another folder with --into",
        )
    return ImportPlan(target, files, _validate(target, files))


def add_report(plan: ImportPlan, imports: Sequence[ImportResult]) -> ImportPlan:
    """Return a plan with the report as a file beside edison.yaml."""
    name = f"{imports[0].name}-import.md"
    if os.path.lexists(plan.target.root / name):
        raise UsageError(f"{name} exists already; nothing was written", hint="rename or remove it")
    paths = [path for path in plan.files if not _is_schema(path)]
    title = f"Import of {', '.join(result.name for result in imports)}"
    page = report_markdown(title, [result.fidelity for result in imports], paths)
    return replace(plan, files={**plan.files, name: page})


def _shared_files(target: ImportTarget, imports: Sequence[ImportResult]) -> dict[str, str]:
    """Return edison.yaml, the registry and the rest of a new project."""
    models = {name: entry for result in imports for name, entry in result.models.items()}
    registry = target.setting.paths.models
    if os.path.lexists(target.root / registry) and models:
        lines = " ".join(yaml_text(dict(models)).splitlines())
        raise UsageError(
            f"{registry} does not contain {', '.join(models)}; nothing was written",
            hint=f"add this to it, then import again: {_registry_hint(models) or lines}",
        )
    files: dict[str, str] = {}
    if models:
        listed: dict[str, Json] = {"version": 1, **models}
        files[registry] = schema_line(posixpath.dirname(registry), "models") + yaml_text(listed)
    if target.is_project:
        return files
    files[PROJECT] = schema_line("", "edison") + yaml_text(_project(imports))
    for path in sorted(resource_folder("schemas").glob("*.json")):
        files[f".edison/schemas/{path.name}"] = path.read_text(encoding="utf-8")
    return {n: t for n, t in files.items() if not (_is_schema(n) and (target.root / n).exists())}


def _is_schema(name: str) -> bool:
    return name.startswith(".edison/schemas/")


def _registry_hint(models: Mapping[str, dict[str, Json]]) -> str:
    return "; ".join(yaml_text({name: entry}).strip() for name, entry in models.items())


def _project(imports: Sequence[ImportResult]) -> dict[str, Json]:
    first = imports[0]
    defaults: dict[str, Json] = {"model": first.model}
    judge = next((result.judge for result in imports if result.judge is not None), None)
    if judge is not None:
        defaults["judge"] = judge
    if all(_has_price(entry) for result in imports for entry in result.models.values()):
        defaults["budget_usd"] = 5
    project: dict[str, Json] = {"version": 1, "project": slug(first.name) or "imported"}
    if first.description:
        project["description"] = first.description[:1_000]
    return {**project, "defaults": defaults}


def _has_price(entry: Mapping[str, Json]) -> bool:
    """Whether the price of a model is known, so that a budget can be kept."""
    provider = str(entry["provider"])
    if provider in OFFLINE or provider == "ollama" or "price" in entry:
        return True
    vendor = vendor_at(str(entry.get("base_url", ""))) if provider == "openai_compatible" else None
    start = vendor.prices if vendor is not None and vendor.prices else provider
    return f"{start}/{entry.get('model')}" in load_prices().models


def _validate(target: ImportTarget, files: dict[str, str]) -> tuple[Problem, ...]:
    """Return the warnings of the loader about the files; raises ConfigError for errors."""
    tree: Tree = WorkingTree(target.root)
    for path, text in files.items():
        tree = OverlayTree(tree, path, text)
    project, problems = inspect_project(tree)
    if project is not None:
        for experiment in project.experiments.values():
            if experiment.path in files:
                problems = [*problems, *DataCheck(project, experiment).run().problems]
    ours = [problem for problem in problems if problem.where.file in files]
    if only_errors(ours):
        raise ConfigError(only_errors(ours))
    return tuple(ours)


def _write_file(root: Path, name: str, text: str) -> Path:
    path = root / name
    try:
        make_folder(path.parent)
        if not Path(os.path.realpath(path.parent)).is_relative_to(os.path.realpath(root)):
            raise UsageError(
                f"{name} would be written outside of the project",
                hint="its folder is a symbolic link: remove the link",
            )
        with path.open("xb") as stream:  # x: never overwrites, even if the file appears meanwhile
            stream.write(text.encode())
    except FileExistsError:
        raise UsageError(
            f"{name} exists already; nothing was written", hint="choose another name with --name"
        ) from None
    except OSError as error:
        raise UsageError(
            f"{str(path)!r} cannot be written: {error.strerror}",
            hint="choose a writable folder with --into",
        ) from None
    return path
