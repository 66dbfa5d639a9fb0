"""Files that must be refused, each with what is to be said about it in its first lines.

    tests/bad/both/KIND/NAME          the model and the schema refuse it
    tests/bad/loader_only/RULE/KIND-NAME   no schema can, because of the rule

A comment `# LINE:COLUMN: message (hint)` at the top of a file is one problem of that file. After a
change of wording, `python -m tests.bad_files` writes the comments anew; read the difference.
"""

from __future__ import annotations

import datetime as dt
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edison_ci.config.load import inspect_project
from edison_ci.config.validation import DataCheck
from edison_ci.documents.files import WorkingTree
from edison_ci.documents.yaml_text import read_yaml
from edison_ci.errors import Problem, Severity, sorted_problems
from tests.conftest import MINIMAL, Folder

BAD = Path(__file__).parent / "bad"
TODAY = dt.date(2026, 6, 1)

PLACES = {
    "edison": "edison.yaml",
    "models": "models.yaml",
    "experiment": "experiments/hello.yaml",
    "prompt": "prompts/hello.md",
    "rubric": "rubrics/tone.yaml",
    "dataset": "datasets/names.yaml",
    "about": "datasets/names.about.yaml",
    "quarantine": "quarantine.yaml",
    "labels": "labels/tone.jsonl",
    "judge_approvals": "judge_approvals.yaml",
    "trust": ".edison/trust.yaml",
    "secrets": ".edison/secrets.yaml",
}
"""Where in a project a file of each kind stands."""

LABELLED = "calibration: {labels: labels/tone.jsonl}\ncriteria:"
_EXPECTED = re.compile(r"# [0-9]+:[0-9]+: ")


@dataclass(frozen=True)
class BadFile:
    """A file that must be refused."""

    path: Path

    def __str__(self) -> str:
        return self.path.relative_to(BAD).as_posix()

    @property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @property
    def group(self) -> str:
        """The folder it is in: a kind, or a rule."""
        return self.path.parent.name

    @property
    def kind(self) -> str:
        if self.path.parent.parent.name == "both":
            return self.group
        return self.path.stem.partition("-")[0]

    @property
    def expected(self) -> list[str]:
        """What is to be said about it."""
        lines = self.text.splitlines()
        return [line.removeprefix("# ") for line in lines if _EXPECTED.match(line)]

    @property
    def value(self) -> Any:
        """What it says, as the schema of its kind sees it."""
        text = self.text
        if self.kind == "prompt":
            text = text.split("---\n")[1]
        return read_yaml(text, self.path.name).value

    def said(self) -> list[str]:
        """Return what the loader says about it in a project that is right otherwise."""
        place = PLACES[self.kind]
        with tempfile.TemporaryDirectory() as name:
            folder = minimal(Path(name))
            text = self.text
            if self.kind == "labels":  # JSON has no comments: an empty line in place of each
                text = "".join("\n" if line.startswith("#") else line for line in _lines(text))
                folder.edit("rubrics/tone.yaml", "criteria:", LABELLED)
            folder.write(place, text)
            if self.kind == "dataset":
                folder.edit("experiments/hello.yaml", "datasets/names.jsonl", place)
            found = [p for p in problems_in(folder) if p.where.file == place]
        return [str(problem).removeprefix(f"{place}:") for problem in found]

    def rewrite(self) -> None:
        """Write what is said about it into it."""
        opening = "---\n" if self.kind == "prompt" else ""
        lines = self.text.removeprefix(opening).splitlines(keepends=True)
        body = "".join(line for line in lines if not _EXPECTED.match(line))
        count = 0
        for _ in range(3):  # the comments move the lines they speak of
            self.path.write_text(opening + "# 0:0: \n" * count + body, encoding="utf-8")
            found = self.said()
            count = len(found)
        comments = "".join(f"# {said}\n" for said in found)
        self.path.write_text(opening + comments + body, encoding="utf-8")


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def minimal(path: Path) -> Folder:
    """Return a small valid project in an empty folder."""
    folder = Folder(path)
    for name, text in MINIMAL.items():
        folder.write(name, text)
    return folder


def problems_in(folder: Folder, today: dt.date = TODAY) -> tuple[Problem, ...]:
    """Return everything wrong with a project, its data included, warnings left out."""
    project, found = inspect_project(WorkingTree(folder.path), root=folder.path, today=today)
    problems = list(found)
    if project is not None:
        for experiment in project.experiments.values():
            problems += DataCheck(project, experiment).run().problems
    return sorted_problems(p for p in problems if p.severity is Severity.ERROR)


def bad_files(group: str) -> list[BadFile]:
    return [BadFile(path) for path in sorted((BAD / group).glob("*/*")) if path.is_file()]


if __name__ == "__main__":
    for file in [*bad_files("both"), *bad_files("loader_only")]:
        file.rewrite()
