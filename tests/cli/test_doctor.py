"""edison doctor: what is looked at, and what is a blocker."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from edison_ci.checks.child import has_sandbox
from edison_ci.config.schema import file_name, text_of
from edison_ci.resources import KINDS

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily


def findings(said: str) -> dict[str, tuple[str, str]]:
    told = json.loads(said)["findings"]
    return {found["what"]: (found["verdict"], found["detail"]) for found in told}


def test_a_healthy_machine_and_project(edison: Edison, support: Folder) -> None:
    done = edison(support, "doctor")
    assert done.code == 0
    words = [line.split() for line in done.out.splitlines()]
    named = [word[1] for word in words]
    assert named[:9] == ["edison", "python", "git", "sqlite", "disk", *["extra"] * 4]
    assert {"browser", "project", "prices", "schemas"} <= set(named)
    of_machine = {"startup", "schemas", *([] if has_sandbox() else ["sandbox"])}
    assert {word[0] for word in words if word[1] not in of_machine} <= {"ok", "off"}
    assert not [
        line for line in done.out.splitlines() if line[:2] == "ok" and "not" in line.split()
    ]
    assert "customer-support: 1 experiment\n" in done.out


def test_outside_of_a_project_it_says_how_to_make_one(edison: Edison, folder: Folder) -> None:
    done = edison(folder, "doctor", "--json")
    assert done.code == 0
    assert findings(done.out)["project"] == ("warn", "none here; create one with edison init")


def test_without_git_it_says_what_needs_it(
    edison: Edison, mini: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(mini.path))
    done = edison(mini, "doctor", "--json")
    verdict, detail = findings(done.out)["git"]
    assert (done.code, verdict) == (0, "warn")
    assert "--changed-since" in detail


def test_a_git_that_cannot_be_started_is_said(
    edison: Edison, mini: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    mini.write("bin/git", "#!/nowhere/at/all\n").chmod(0o755)
    monkeypatch.setenv("PATH", str(mini.path / "bin"))
    verdict, detail = findings(edison(mini, "doctor", "--json").out)["git"]
    assert (verdict, detail) == ("warn", f"{mini.path / 'bin' / 'git'} cannot be run")


@pytest.mark.nightly
@pytest.mark.parametrize("version", ["1.82.7", "1.82.8"])
def test_a_stolen_litellm_is_a_blocker_and_is_not_imported(mini: Folder, version: str) -> None:
    mini.write("site/litellm/__init__.py", "raise SystemExit('it was imported')\n")
    mini.write(
        f"site/litellm-{version}.dist-info/METADATA",
        f"Metadata-Version: 2.1\nName: litellm\nVersion: {version}\n",
    )
    done = mini.edison("doctor", "--json", env={"PYTHONPATH": str(mini.path / "site")})
    verdict, detail = findings(done.out)["litellm"]
    assert (done.code, verdict) == (2, "fail")
    assert detail.startswith(f"{version} carries a credential stealer")
    assert json.loads(done.out)["ok"] is False


@pytest.mark.nightly
def test_a_litellm_without_metadata_is_no_bug(mini: Folder) -> None:
    mini.write("site/litellm/__init__.py", "raise SystemExit('it was imported')\n")
    done = mini.edison("doctor", "--json", env={"PYTHONPATH": str(mini.path / "site")})
    assert done.code == 0, done.err
    assert findings(done.out)["litellm"] == ("warn", "installed, but its version is unknown")


@pytest.mark.nightly
def test_an_old_litellm_is_a_blocker_only_where_a_model_needs_it(mini: Folder) -> None:
    mini.write("site/litellm/__init__.py", "raise SystemExit('it was imported')\n")
    mini.write("site/litellm-1.99.0.dist-info/METADATA", "")
    site = {"PYTHONPATH": str(mini.path / "site")}
    done = mini.edison("doctor", "--json", env=site)
    said = "1.99.0 is too old; 1.100 or newer is needed"
    assert (done.code, findings(done.out)["litellm"]) == (0, ("warn", said))
    options = "options: {project: p, location: l}, price: free"
    mini.edit(
        "models.yaml", "provider: sim, model: small", f"provider: vertex, model: m, {options}"
    )
    done = mini.edison("doctor", "--json", env=site)
    verdict, detail = findings(done.out)["needed"]
    assert (done.code, verdict) == (2, "fail")
    assert f"models.yaml:1:1: model 'small' cannot be called: litellm {said}" in detail


@pytest.mark.nightly
def test_schemas_that_are_old_or_missing_are_named(edison: Edison, mini: Folder) -> None:
    verdict, detail = findings(edison(mini, "doctor", "--json").out)["schemas"]
    assert verdict == "warn"
    assert "edison, models, experiment" in detail
    edison(mini, "init")
    written = mini.path / ".edison/schemas"
    for kind in KINDS:
        (written / file_name(kind)).write_text(text_of(kind), encoding="utf-8")
    assert findings(edison(mini, "doctor", "--json").out)["schemas"] == (
        "ok",
        "up to date",
    )
    (written / "rubric.schema.json").write_text("{}", encoding="utf-8")
    verdict, detail = findings(edison(mini, "doctor", "--json").out)["schemas"]
    assert (verdict, "missing in .edison/schemas: rubric;" in detail) == ("warn", True)


def test_a_key_is_set_or_not_and_never_printed(
    edison: Edison, mini: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    mini.edit("models.yaml", "small: {", "mini: {provider: openai, model: gpt-4o-mini}\nsmall: {")
    told = findings(edison(mini, "doctor", "--json").out)
    assert told["key"] == ("warn", "OPENAI_API_KEY is not set")
    monkeypatch.setenv("OPENAI_API_KEY", "canary-in-a-mine")
    done = edison(mini, "doctor", "--json")
    assert findings(done.out)["key"] == ("ok", "OPENAI_API_KEY is set")
    assert "canary" not in done.all


def test_an_unknown_price_is_named(edison: Edison, mini: Folder) -> None:
    mini.edit("models.yaml", "small: {", "own: {provider: ollama, model: x}\nsmall: {")
    verdict, detail = findings(edison(mini, "doctor", "--json").out)["prices"]
    assert (verdict, detail.endswith("; unknown: own")) == ("warn", True)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("edison.yaml", "version: 2\n", "2 errors; see edison validate"),
        ("datasets/names.jsonl", "nonsense\n", "1 error; see edison validate"),
    ],
)
def test_an_invalid_project_is_a_blocker(
    edison: Edison, mini: Folder, name: str, text: str, said: str
) -> None:
    mini.write(name, text)
    done = edison(mini, "doctor", "--json")
    assert done.code == 2
    assert findings(done.out)["project"] == ("fail", said)


@pytest.mark.nightly
def test_a_file_that_runs_at_every_start_of_python_is_named(mini: Folder) -> None:
    site = mini.path / "site-packages"
    mini.write("site-packages/sneaky.pth", "import os\n")
    mini.write("site-packages/paths.pth", "/somewhere\n")
    done = mini.edison("doctor", "--json", env={"PYTHONPATH": str(site)})
    told = json.loads(done.out)["findings"]
    sneaky = [f["detail"] for f in told if f["what"] == "startup" and "sneaky" in f["detail"]]
    assert sneaky == ["sneaky.pth runs code whenever Python starts"]
    assert "paths.pth" not in done.out
