"""A project that is being drafted: the answers so far, where they are saved, and its files.

The answers and a copy of the project are in a hidden folder of the target, which is removed when
the project is created. The copy is valid at every step, so that a model can draft for it and its
cost can be planned: what was not answered yet has a default.
"""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import asdict, field, fields
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from edison_ci._dataclass import dataclass
from edison_ci.access import site as sites
from edison_ci.config import load as config_load
from edison_ci.config import project as config_project
from edison_ci.documents import files as document_files
from edison_ci.documents import json_text, marks, yaml_edit, yaml_text
from edison_ci.errors import UsageError
from edison_ci.features.assist.draft_kinds import prompt_file
from edison_ci.numeric import percent
from edison_ci.stats import power

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from edison_ci.config.load import Experiment, Project
    from edison_ci.records import Json

FOLDER = ".edison-wizard"
VERSION = 1
SIMULATOR = "assistant"
"""The simulated model that drafts."""
FRAGMENTS = {
    "models": ("models",),
    "judges": ("judges", "safety"),
    "limits": ("stop",),
}
"""Keys of the experiment that each of the last steps decides."""
PASS_AT = 0.6
_NAME_WORDS = 3
_SMALL_WORDS = frozenset(
    {"a", "an", "and", "for", "from", "in", "into", "my", "of", "on", "or", "our", "that", "the"}
    | {"their", "to", "with"}
)
_DEFAULTS: dict[str, dict[str, Json]] = {
    "models": {"models": ["small"]},
    "judges": {
        "judges": {"pointwise": ["judge"]},
        "safety": {"pii": "flag", "jailbreak": "flag", "secrets": "block"},
    },
    "limits": {"stop": {"max_iterations": 8, "window": 2, "budget_usd": 1}},
}
_TEXTS = Path(__file__).parent / "project"
"""Files of a new project; a word after @ is replaced."""


class _Text(Template):
    delimiter = "@"


def _text(file: str, **values: str) -> str:
    """Return the text of a file of a new project."""
    return _Text((_TEXTS / file).read_text(encoding="utf-8")).substitute(values)


@dataclass(slots=True)
class ProjectDraft:
    """What was answered so far."""

    project: str
    step: int = 0
    name: str = "first"
    """Name of the experiment and its files."""
    hints: str = ""
    drafter: str = ""
    """Name of the model that drafts; empty until it was asked for."""
    models: str = ""
    """Text of models.yaml with models that were added."""
    objective: str = ""
    rubric: str = ""
    """Text of the file."""
    inputs: list[str] = field(default_factory=list)
    prompt: str = ""
    """Text of the message."""
    data: str = ""
    """Text of the dataset."""
    data_kind: str = "golden"
    source: str = ""
    """Where the cases come from: generate, type or import; empty until it is known."""
    count: int = 50
    rows: list[dict[str, Any]] = field(default_factory=list)
    """Cases that were typed so far."""
    fragments: dict[str, str] = field(default_factory=dict)
    """Texts of keys of the experiment, by step."""
    redone: dict[str, int] = field(default_factory=dict)
    """How often each draft was redone."""
    drafted: dict[str, list[str]] = field(default_factory=dict)
    """The model and the version of its instructions, by the path of what it wrote."""

    def rename(self, target: Path) -> None:
        """Name the experiment by what it is for; no file of the target has the name."""
        words = re.findall(r"[A-Za-z0-9]+", self.hints.replace("'", ""))
        content_words = [word for word in words if word.lower() not in _SMALL_WORDS] or words
        name = config_project.slug(" ".join(content_words[:_NAME_WORDS]))[:40].strip("-") or "first"
        self.name, number = name, 2
        while any((target / path).exists() for path in self._own_files()):
            self.name, number = f"{name}-{number}", number + 1

    def _own_files(self) -> Iterator[str]:
        yield f"experiments/{self.name}.yaml"
        yield f"rubrics/{self.name}.yaml"
        yield f"prompts/{self.name}.md"
        yield f"datasets/{self.name}.jsonl"

    def files(self) -> dict[str, str]:
        """Return all files of the project by path."""
        name = self.name
        return {
            "edison.yaml": self._project_file(),
            "models.yaml": self.models or _text("models.yaml"),
            f"experiments/{name}.yaml": self._experiment(),
            f"rubrics/{name}.yaml": self.rubric or self.rubric_skeleton(),
            f"prompts/{name}.md": prompt_file(name, self.prompt or self.prompt_skeleton()),
            f"datasets/{name}.jsonl": self.data or self._first_case(),
        }

    def _project_file(self) -> str:
        return _text(
            "edison.yaml",
            project=yaml_edit.scalar(self.project),
            refiner=yaml_edit.scalar(self.refiner),
            assistant=yaml_edit.scalar(self.drafter or SIMULATOR),
        )

    def _experiment(self) -> str:
        text = _text(
            "experiment.yaml",
            name=self.name,
            quoted_name=yaml_edit.scalar(self.name),
            kind=self.data_kind,
            checks="\n".join(self._checks()),
            flips=self.flips,
            refiner=yaml_edit.scalar(self.refiner),
            **{step: self.fragment(step) for step in FRAGMENTS},
        )
        objective = self.objective or "Answer what is asked, correctly and in few words."
        return yaml_edit.with_text(text, "objective", objective, after="experiment")

    def _checks(self) -> list[str]:
        rows = ["  - not: {regex: '(?i)as an ai'}", "  - words: {max: 400}"]
        # Only what a person wrote is held against an answer.
        if self.data_kind == "golden" and '"expected":' in self.data:
            rows.insert(0, '  - icontains: {value: "{{ expected }}", weight: 0.5}')
        return rows

    @property
    def flips(self) -> str:
        """The limit of net newly failing cases, by the number of cases."""
        return percent(power.flips_limit(max(1, len(self.data.splitlines()))))

    @property
    def refiner(self) -> str:
        """The model that proposes changes: the one that drafts, if it is a real one."""
        return "refiner" if self.drafter in ("", SIMULATOR) else self.drafter

    def fragment(self, step: str) -> str:
        """Return the keys of the experiment that a step decides, as YAML."""
        return self.fragments.get(step) or fragment_text(_DEFAULTS[step])

    def rubric_skeleton(self) -> str:
        """Return a rubric to begin with."""
        return with_threshold(_text("rubric.yaml", name=yaml_edit.scalar(self.name)))

    def prompt_skeleton(self) -> str:
        """Return a prompt to begin with."""
        rows = [f"{name}: {{{{ {name} }}}}" for name in self.inputs or ["message"]]
        return "\n".join([self.objective or "Answer what is asked.", "", *rows])

    def _first_case(self) -> str:
        row = {"id": "first", "input": dict.fromkeys(self.inputs or ["message"], "Hello.")}
        return json.dumps(row) + "\n"


def fragment_text(values: Mapping[str, Json]) -> str:
    """Return keys with their values as YAML, one in each line."""
    return "\n".join(f"{key}: {yaml_edit.flow(value)}" for key, value in values.items())


def with_threshold(rubric: str) -> str:
    """Return the text of a rubric by which an answer can fail."""
    if "\npass_at:" in rubric:
        return rubric
    comment = "# An answer passes if its weighted score reaches this."
    return f"{rubric.rstrip()}\n\n{comment}\npass_at: {PASS_AT}\n"


def fragment_values(text: str) -> dict[str, Json]:
    """Return the keys of a fragment with their values; raises Fault."""
    value = yaml_text.read_yaml(text, "").value
    return value if isinstance(value, dict) else {}


_MOST_BYTES = 100_000_000


class SavedDraft:
    """The hidden folder with the answers and the copy of the project.

    It may have come with the target, from a stranger: so answers are checked, no link is followed,
    and of the copy only the results of an earlier start are used.
    """

    def __init__(self, target: Path) -> None:
        self.target = target
        self.folder = target / FOLDER
        self.copy = self.folder / "project"
        self._answers = self.folder / "answers.json"
        self._results = self.copy / ".edison"

    def exists(self) -> bool:
        """Whether there are answers of an earlier start."""
        return self._answers.exists()

    def load(self) -> ProjectDraft | None:
        """Return the answers of an earlier start; None if there are none that can be used."""
        tree = document_files.WorkingTree(self.folder)
        try:
            data = document_files.read(tree, self._answers.name, max_bytes=_MOST_BYTES)
            value = json_text.parse_json(data.decode())
            if not isinstance(value, dict) or value.pop("version", None) != VERSION:
                return None
            if value.keys() != {field.name for field in fields(ProjectDraft)}:
                return None
            draft = TypeAdapter(ProjectDraft).validate_python(value)
        except (marks.Fault, ValueError):
            return None
        # The name becomes the names of files.
        usable = draft.step >= 0 and draft.name and draft.name == config_project.slug(draft.name)
        return draft if usable else None

    def save(self, draft: ProjectDraft) -> None:
        """Save the answers."""
        self.refuse_links()
        document_files.replace_file(self.folder, ".gitignore", b"*\n")
        data = {"version": VERSION, **asdict(draft)}
        text = json.dumps(data, ensure_ascii=False, indent=1)
        document_files.replace_file(self.folder, self._answers.name, text.encode("utf-8"))

    def project(self, draft: ProjectDraft) -> tuple[Project, Experiment]:
        """Write the copy of the project and load it; raises ConfigError if it is not valid."""
        self.refuse_links()
        self._clear()
        for path, text in draft.files().items():
            target = self.copy / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        project = config_load.load_project(self.copy)
        return project, project.experiment(draft.name)

    def refuse_links(self) -> None:
        """Raise UsageError if what is written here would be somewhere else."""
        for folder in (self.folder, self.copy, self._results):
            if folder.is_symlink():
                hint = "check where it comes from, and remove it"
                raise UsageError(f"{folder.relative_to(self.target)} is a link", hint=hint)

    def _clear(self) -> None:
        """Remove everything in the copy but the results."""
        for path in [*self.copy.glob("*"), *self._results.glob("*")]:
            if path.is_symlink() or not path.is_dir():
                if path.is_symlink() or not path.name.startswith("results.db"):
                    path.unlink()
            elif path != self._results:
                shutil.rmtree(path)

    def hand_over(self, draft: ProjectDraft) -> None:
        """Give the created project the calls for its drafts, and say in its audit who wrote it."""
        project = config_load.load_project(self.target)
        site = sites.Site(self.target, project.file)
        document_files.make_folder(site.results.parent)
        calls = self._results / "results.db"
        if calls.exists() and not site.results.exists():
            calls.replace(site.results)
        actor = site.require(sites.Role.EDITOR, "assist", draft.name)
        for path, (model, instructions) in draft.drafted.items():
            after = {"model": model, "instructions": instructions[:12]}
            site.record(actor, "assist", path.partition("#")[0], after=after)
        self.remove()

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)
