"""What the commands do can be done from Python, with the same guarantees."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
from contextlib import contextmanager
from dataclasses import dataclass, field
from html.parser import HTMLParser
from types import FunctionType
from typing import TYPE_CHECKING

import pytest

import edison_ci
from edison_ci import (
    Project,
    Result,
    RunOptions,
    Selection,
    SessionFactory,
    compare,
    gate,
    load,
    propose,
    refine_prompt,
    regrade,
    render_report,
    replay,
    result,
    resume,
    run,
    validate,
)
from edison_ci.errors import EdisonError, RoleError, UsageError
from edison_ci.feature import features
from tests.conftest import ROOT
from tests.opened import opened

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import Folder


@dataclass
class Past:
    """A project after a run, to be copied, and what the run returned."""

    path: Path
    results: list[Result] = field(default_factory=list)


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Past:
    return Past(tmp_path_factory.mktemp("past") / "project")


@pytest.fixture
def found(support: Folder, project: Project, past: Past) -> Result:
    """A run of the project, which is made for the first test and copied for the others."""
    if past.results:
        shutil.rmtree(support.path)
        shutil.copytree(past.path, support.path)
    else:
        past.results += run(project)
        shutil.copytree(support.path, past.path)
    return past.results[0]


@pytest.fixture
def project(support: Folder) -> Project:
    experiment = "experiments/support-reply.yaml"
    support.edit(experiment, "  - {path: datasets/adversarial.jsonl, kind: adversarial}\n", "")
    support.git("init", "-q")
    support.git("add", "-A")
    support.git("commit", "-qm", "start")
    support.git("config", "user.name", "Ada")
    support.git("config", "user.email", "ada@example.com")
    return load(support.path)


def test_a_run_says_what_the_command_says_of_it(support: Folder, found: Result) -> None:
    told = json.loads(support.edison("status", found.run.id, "--json").out)["runs"][0]
    composite = found.overall.composite
    assert composite is not None
    assert told["composite"]["estimate"] == pytest.approx(composite.estimate, abs=1e-9)
    assert told["cells"] == found.cells
    assert told["verdict"] == found.run.verdict == "pass"
    assert told["trigger"] == "library"
    assert [one["metric"] for one in told["gates"]] == [row.metric for row in found.gates]


def test_answers_are_stored_once_and_used_again(project: Project, found: Result) -> None:
    (second,) = run(project, ["support-reply"])
    assert found.calls["made"] > 0
    assert second.calls["made"] == 0
    assert second.calls["reused"] > 0


def test_a_part_is_marked_and_runs_are_found_by_name(project: Project) -> None:
    (part,) = run(project, options=RunOptions(selection=Selection(limit=5)))
    assert "part of the cases" in part.labels
    assert part.cells["total"] == 5
    assert result(project).run.id == result(project, "support-reply").run.id == part.run.id


def test_a_change_is_compared_with_its_base(support: Folder, project: Project) -> None:
    support.edit("prompts/support-reply.md", "You ", "You never answer. You ")
    (found,) = run(load(support.path), against="HEAD")
    assert found.against is not None and found.changes
    (change,) = found.changes
    assert change.comparison.n == found.against.n
    assert gate(load(support.path), found.run.id).decision.verdict == found.run.verdict
    same = compare(load(support.path), found.run.id, found.run.id)
    assert same.sentence.startswith("Nothing to compare")


def test_recorded_answers_are_replayed(support: Folder, project: Project) -> None:
    recorded = support.path / "answers.jsonl"
    done = support.edison("run", "--record", str(recorded))
    assert done.code == 0
    (again,) = replay(project, recorded)
    assert again.run.trigger == "replay"
    assert "replayed" in again.labels
    with pytest.raises(UsageError, match="answers from a recording"):
        resume(project, again.run.id)


def test_a_run_that_was_interrupted_goes_on(project: Project) -> None:
    @contextmanager
    def interrupting() -> Iterator[dict[str, object]]:
        yield {"on_start": lambda _: os.kill(os.getpid(), signal.SIGINT)}

    (paused,) = run(project, factory=SessionFactory(hooks=interrupting))
    assert paused.run.status == "PAUSED"
    assert sum(paused.cells.values()) - paused.cells["total"] < paused.cells["total"]
    done = resume(project, paused.run.id)
    assert done.run.id == paused.run.id
    assert (done.run.status, done.cells["ok"]) == ("COMPLETED", done.cells["total"])


def test_stored_answers_are_graded_again_without_a_call(project: Project, found: Result) -> None:
    again = regrade(project, found.run.id)
    assert again.run.id != found.run.id
    assert again.calls["made"] == 0
    assert again.overall.composite == found.overall.composite


def test_reports_are_those_of_the_command(support: Folder, project: Project, found: Result) -> None:
    assert render_report(project, found.run.id) == support.edison("report", found.run.id).out
    junit = support.edison("report", found.run.id, "--format", "junit").out
    assert render_report(project, found.run.id, format="junit") == junit


@pytest.mark.nightly
def test_a_prompt_is_refined_and_proposed_as_a_branch(
    support: Folder, project: Project, found: Result
) -> None:
    assert propose(project) is None, "nothing was suggested yet"
    (one,) = refine_prompt(project, "support-reply").suggestions
    assert one.status == "proposed"
    with opened(support.path / ".edison/results.db") as connection:
        (action,) = connection.execute(
            "select action from audit where action = 'refine'"
        ).fetchone()
    assert action == "refine"
    offered = propose(project)
    assert offered is not None and offered.suggestion.id == one.id
    assert str(offered.suggestion.branch) in support.git("branch", "--format", "%(refname:short)")


def test_it_works_where_an_event_loop_runs_already(project: Project) -> None:
    async def notebook() -> str | None:
        (found,) = run(project, options=RunOptions(selection=Selection(limit=3)))
        return found.run.status

    assert asyncio.run(notebook()) == "COMPLETED"


class Tags(HTMLParser):
    """Collects what a page is made of."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_notebook_shows_a_result(found: Result) -> None:
    page = Tags()
    page.feed(found._repr_html_())
    assert page.tags == {"table", "caption", "thead", "tbody", "tr", "th", "td", "bdi"}
    assert found.run.id in page.text
    assert "simulated" in page.text


def test_who_may_not_run_is_refused(support: Folder, project: Project) -> None:
    support.edit("edison.yaml", "project:", "members: [{github: ada, role: owner}]\nproject:")
    with pytest.raises(RoleError):
        run(load(support.path))


def test_problems_are_told_with_their_place(support: Folder, project: Project) -> None:
    assert validate(support.path) == []
    support.edit("experiments/support-reply.yaml", "objective:", "objectiv:")
    problems = validate(support.path)
    assert any(problem.where.file == "experiments/support-reply.yaml" for problem in problems)
    with pytest.raises(EdisonError):
        load(support.path)


def test_the_example_of_the_documentation_works(
    support: Folder, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    monkeypatch.chdir(support.path)
    exec(compile(example, "docs/library.md", "exec"), {})
    assert result(project).run.status == "COMPLETED"


def test_the_documentation_names_every_function() -> None:
    page = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")
    functions = [n for n in edison_ci.__all__ if isinstance(getattr(edison_ci, n), FunctionType)]
    listed = {*functions, *(name for each in features() for name in each.library)} - {
        "inspect_project",
        "load_project",
    }
    assert listed == set(re.findall(r"^\| `(\w+)\(", page, flags=re.MULTILINE))
