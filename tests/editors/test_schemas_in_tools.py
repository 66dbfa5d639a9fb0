"""The published schemas in the tools of others: check-jsonschema, ajv, yaml-language-server."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.config.experiment import AMOUNT_METRICS, SCORE_METRICS
from edison_ci.config.schema import file_name
from edison_ci.config.screens import SAFETY_KINDS
from edison_ci.documents.yaml_text import read_yaml
from edison_ci.resources import KINDS, MESSAGES
from tests import forked
from tests.bad_files import PLACES, bad_files
from tests.conftest import EXAMPLES, ROOT
from tests.editors.node import LanguageServer, ajv
from tests.full_files import FULL

if TYPE_CHECKING:
    from collections.abc import Iterator

PUBLISHED = ROOT / "schemas"
SCHEMAS = {kind: json.loads((PUBLISHED / file_name(kind)).read_text()) for kind in KINDS + MESSAGES}
METRICS = [*SCORE_METRICS, *AMOUNT_METRICS, *(f"safety.{kind}" for kind in SAFETY_KINDS)]


# --- check-jsonschema -----------------------------------------------------------------------------


def check_jsonschema(*words: str | Path) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("check-jsonschema")
    return subprocess.run([program, *words], capture_output=True, text=True, check=False)


@pytest.mark.nightly
def test_check_jsonschema_takes_every_schema(tmp_path: Path) -> None:
    done = check_jsonschema("--check-metaschema", *sorted(PUBLISHED.glob("*.schema.json")))
    assert done.returncode == 0, done.stdout
    broken = tmp_path / "broken.schema.json"
    text = (PUBLISHED / file_name("rubric")).read_text()
    broken.write_text(text.replace("^ *[A-Za-z0-9]", r"^\\\" *[A-Za-z0-9]"))
    assert "is not a 'regex'" in check_jsonschema("--check-metaschema", broken).stdout


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["edison", "models", "experiment", "rubric"])
def test_check_jsonschema_takes_every_example(kind: str) -> None:
    files = sorted(EXAMPLES.glob(f"*/{PLACES[kind].replace('hello', '*').replace('tone', '*')}"))
    assert len(files) >= 4
    done = check_jsonschema("--schemafile", PUBLISHED / file_name(kind), *files)
    assert done.returncode == 0, done.stdout
    other = "rubric" if kind != "rubric" else "models"
    assert check_jsonschema("--schemafile", PUBLISHED / file_name(other), *files).returncode == 1


# --- ajv ------------------------------------------------------------------------------------------


def test_ajv_takes_every_schema_and_warns_of_nothing() -> None:
    assert ajv(SCHEMAS, []).said == []


@pytest.mark.nightly
def test_ajv_agrees_on_every_good_and_every_bad_file() -> None:
    good = [(kind, read_yaml(FULL[kind], "full.yaml").value) for kind in KINDS]
    bad = [(file.kind, file.value) for file in bad_files("both")]
    beyond = [(file.kind, file.value) for file in bad_files("loader_only")]
    verdicts = ajv(SCHEMAS, [*good, *bad, *beyond]).verdicts
    assert len(good) == len(KINDS)
    assert len(bad) >= 180
    assert all(verdicts[: len(good)])
    taken = [
        str(file)
        for file, verdict in zip(bad_files("both"), verdicts[len(good) :], strict=False)
        if verdict is not False
    ]
    assert taken == []
    assert all(verdicts[len(good) + len(bad) :])


def test_ajv_refuses_a_pattern_that_is_no_unicode_expression() -> None:
    said = ajv({"broken": {"type": "string", "pattern": r"\"a\""}}, []).said
    assert len(said) == 1
    assert "Invalid regular expression" in said[0]


# --- yaml-language-server -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a new project, with its schemas and the lines that name them."""
    folder = tmp_path_factory.mktemp("edited") / "project"
    made = forked.run(
        [sys.executable, "-P", "-m", "edison_ci", "init", folder],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert made.returncode == 0, made.stderr
    return folder


@pytest.fixture(scope="module")
def server(project: Path) -> Iterator[LanguageServer]:
    with LanguageServer(project) as server:
        yield server


def experiment(project: Path) -> str:
    """Return the text of the experiment of the project."""
    (path,) = (project / "experiments").glob("*.yaml")
    return path.read_text()


@pytest.mark.nightly
def test_the_language_server_finds_nothing_wrong_in_a_new_project(
    project: Path, server: LanguageServer
) -> None:
    found = {}
    for path in sorted(project.rglob("*.yaml")):
        text = path.read_text()
        assert text.startswith("# yaml-language-server: $schema="), path
        place = path.relative_to(project)
        found[place.as_posix()] = server.diagnose(place.parent.as_posix(), text)
    assert len(found) >= 5
    assert [said for said in found.values() if said] == []


@pytest.mark.parametrize("kind", ["edison", "models", "experiment", "rubric", "trust"])
def test_the_language_server_says_what_is_wrong_and_where(
    kind: str, server: LanguageServer
) -> None:
    folder = PLACES[kind].rpartition("/")[0]
    schema = f"{'../' if folder else ''}.edison/schemas/{file_name(kind)}"
    whole = f"# yaml-language-server: $schema={schema}\n{FULL[kind].lstrip()}"
    assert server.diagnose(folder, whole) == []
    wrong = server.diagnose(folder, f"{whole}colour: 1\n")
    assert wrong
    assert {said.partition(":")[0] for said in wrong} == {str(whole.count("\n") + 1)}


def test_the_language_server_names_the_metrics_where_one_is_unknown(
    project: Path, server: LanguageServer
) -> None:
    wrong = re.sub(r"metric: \w+", "metric: compsite", experiment(project), count=1)
    line = wrong[: wrong.index("compsite")].count("\n") + 1
    said = server.diagnose("experiments", wrong)
    assert {one.partition(":")[0] for one in said} == {str(line)}
    assert '"composite"' in said[0]


@pytest.mark.parametrize("form", ["  - {metric: ¦, at_least: 60%}\n", "  - metric: ¦\n"])
def test_the_metric_of_a_gate_completes(form: str, project: Path, server: LanguageServer) -> None:
    head = experiment(project).partition("\ngates:")[0]
    labels = server.complete("experiments", f"{head}\ngates:\n{form}")
    assert {*METRICS, "criterion.NAME", "check.NAME", "grader.NAME"} <= labels


def test_checks_keys_and_providers_complete(project: Path, server: LanguageServer) -> None:
    head = experiment(project).partition("\nchecks:")[0]
    checks = server.complete("experiments", f"{head}\nchecks:\n  - ¦\n")
    assert {"contains", "regex", "json_schema", "refusal"} <= checks
    keys = server.complete("experiments", f"{head}\ngates:\n  - metric: composite\n    ¦\n")
    assert {"at_least", "no_worse_than", "margin", "if_unclear"} <= keys
    models = "# yaml-language-server: $schema=.edison/schemas/models.schema.json\nsmall:\n"
    assert {"openai", "anthropic", "sim"} <= server.complete("", f"{models}  provider: ¦\n")


# --- patterns -------------------------------------------------------------------------------------


def patterns(value: Any) -> Iterator[str]:
    """Yield every regular expression in a schema."""
    if isinstance(value, dict):
        if isinstance(value.get("pattern"), str):
            yield value["pattern"]
        yield from value.get("patternProperties", {})
        for inner in value.values():
            yield from patterns(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from patterns(inner)


def test_every_pattern_of_every_published_file_is_a_unicode_expression() -> None:
    every = {
        pattern
        for path in PUBLISHED.glob("*.json")
        for pattern in patterns(json.loads(path.read_text()))
    }
    assert len(every) > 30
    one_each = {pattern: {"type": "string", "pattern": pattern} for pattern in sorted(every)}
    assert ajv(one_each, []).said == []
