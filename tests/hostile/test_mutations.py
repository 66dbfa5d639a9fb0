"""Whatever is done to valid files, reading them ends in problems with a place, never in a crash.

`EDISON_FUZZ_EXAMPLES=20000 pytest tests/hostile/test_mutations.py` looks for new damage instead of
the same 150 files every time.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edison_ci.config.load import load_project
from edison_ci.errors import ConfigError, Severity
from edison_ci.plan.plan import plan_run
from tests.conftest import EXAMPLES
from tests.hostile.kitchen import PROJECT, check_problem, lay_out, problems_in
from tests.hostile.mutations import MUTATIONS, damaged

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.daily

FUZZ = int(os.environ.get("EDISON_FUZZ_EXAMPLES", "0"))
SUPPORT = EXAMPLES / "customer-support"
READ = ("*.yaml", "*.md", "*.jsonl", "*.csv", "*.json")

FILES = [("kitchen", name) for name in PROJECT] + [
    ("support", path.relative_to(SUPPORT).as_posix())
    for pattern in READ
    for path in sorted(SUPPORT.rglob(pattern))
    if path.name != "README.md"
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("mutations")
    lay_out(root / "kitchen")
    shutil.copytree(SUPPORT, root / "support")
    return {"kitchen": root / "kitchen", "support": root / "support"}


def test_the_files_that_are_damaged_are_valid_before(folders: dict[str, Path]) -> None:
    assert {"datasets/golden.jsonl", ".edison/trust.yaml"} <= {name for _, name in FILES}
    assert [problem for folder in folders.values() for problem in problems_in(folder)] == []


def check(folder: Path) -> bool:
    """Check that validate and plan tell the same, in words; return whether all is well."""
    problems = problems_in(folder)
    for problem in problems:
        check_problem(problem, folder)
    wrong = any(problem.severity is Severity.ERROR for problem in problems)
    try:
        project = load_project(folder)
        for experiment in project.experiments.values():
            plan_run(project, experiment)
    except ConfigError as error:
        assert wrong, error
        return False
    assert not wrong
    return True


@pytest.mark.nightly
@settings(
    max_examples=FUZZ or 150,
    derandomize=not FUZZ,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(file=st.sampled_from(FILES), mutations=st.lists(MUTATIONS, min_size=1, max_size=4))
def test_a_damaged_file_gives_problems_inside_it_and_nothing_else(
    folders: dict[str, Path],
    file: tuple[str, str],
    mutations: list[Callable[[bytes], bytes]],
) -> None:
    folder = folders[file[0]]
    path = folder / file[1]
    whole = path.read_bytes()
    try:
        path.write_bytes(damaged(whole, mutations))
        check(folder)
    finally:
        path.write_bytes(whole)


@pytest.mark.parametrize(
    "name", [name for name in PROJECT if not name.endswith((".md", ".csv"))]
)  # part of a free text is a text too
def test_a_file_cut_short_in_its_last_line_is_noticed(name: str, folders: dict[str, Path]) -> None:
    path = folders["kitchen"] / name
    whole = path.read_bytes()
    try:
        path.write_bytes(whole.rstrip()[:-4])
        assert not check(folders["kitchen"])
    finally:
        path.write_bytes(whole)
