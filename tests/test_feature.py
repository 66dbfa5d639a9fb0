"""What features declare: every place leads somewhere, and the rest works without any of them."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import click
import pytest

from edison_ci import feature
from edison_ci.access.site import open_site
from edison_ci.api.duties import duties_of
from edison_ci.cli import groups
from edison_ci.config.experiment import ExperimentFile
from edison_ci.config.load import load_project
from edison_ci.errors import UsageError
from edison_ci.git.host import RepositoryAddress, RepositoryHost
from edison_ci.proposals.context import ReviewContext
from edison_ci.store.database import open_database
from tests.conftest import MINIMAL

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Edison, Folder

FEATURES = feature.features()
NAMES = [each.name for each in FEATURES]


def test_every_command_that_a_feature_declares_is_there(subtests: pytest.Subtests) -> None:
    assert len(NAMES) == 11
    for each in FEATURES:
        for words, command in each.commands.items():
            with subtests.test(words, feature=each.name):
                found = feature.load(f"{each.package}.{command.place}")
                assert isinstance(found, click.Command)
                assert words.rpartition(" ")[0] in {"", *groups.commands()}


def test_a_command_is_declared_once() -> None:
    words = [word for each in FEATURES for word in each.commands]
    core = [*groups.COMMANDS, *(f"{g} {name}" for g, own in groups.GROUPS.items() for name in own)]
    assert len({*words, *core}) == len(words) + len(core)


@pytest.mark.parametrize("name", NAMES)
def test_a_command_of_a_feature_that_is_off_says_so(
    edison: Edison, folder: Folder, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(feature.WITHOUT, name)
    (declared,) = (each for each in FEATURES if each.name == name)
    for words in declared.commands:
        above = words.rpartition(" ")[0]
        if above in declared.commands:
            continue  # its group is off as well
        done = edison(folder, *words.split())
        assert (done.code, done.out) == (2, ""), words
        assert f"the feature {name} is switched off by EDISON_WITHOUT={name}" in done.err
        assert words.split()[-1] not in groups.commands(above)


@pytest.mark.parametrize("off", [*NAMES, ",".join(NAMES)])
def test_the_help_and_a_check_of_the_files_work_without_features(
    edison: Edison, mini: Folder, monkeypatch: pytest.MonkeyPatch, off: str
) -> None:
    monkeypatch.setenv(feature.WITHOUT, off)
    assert edison(mini, "--help").code == 0
    done = edison(mini, "validate")
    assert (done.code, done.err.startswith("ok: ")) == (0, True)


@pytest.mark.parametrize("off", [*NAMES, ",".join(NAMES)])
def test_a_run_works_without_features(
    edison: Edison, mini: Folder, monkeypatch: pytest.MonkeyPatch, off: str
) -> None:
    assert edison(mini, "run", "--record", "answers.jsonl").code == 0
    monkeypatch.setenv(feature.WITHOUT, off)
    again = ("--replay", "answers.jsonl") if "simulator" in off else ("--no-cache",)
    done = edison(mini, "run", *again, "--json")
    assert done.code == 0, done.all
    (run,) = json.loads(done.out)["runs"]
    assert (run["status"], run["errors"], run["cells"]["ok"]) == ("COMPLETED", {}, 2)


def test_workers_need_the_feature_that_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert feature.executor("local:2").__name__ == "workers_at"
    monkeypatch.setenv(feature.WITHOUT, "cluster")
    with pytest.raises(UsageError, match="nothing here has workers at 'local:2'"):
        feature.executor("local:2")


async def test_without_the_feature_a_proposal_has_no_forge(
    mini: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    review = ReviewContext.of(load_project(mini.path))
    address = RepositoryAddress("acme/prompts", "of-nobody")
    hosted = replace(review, hosting=RepositoryHost(address=address))
    async with hosted.github() as forge:
        assert forge is not None
    monkeypatch.setenv(feature.WITHOUT, "github")
    async with hosted.github() as forge:
        assert forge is None


def test_every_hook_is_at_a_point_of_the_core() -> None:
    declared = [(each, *hook) for each in FEATURES for hook in each.hooks.items()]
    assert {point for _, point, _ in declared} == set(feature.HOOKS)
    for each, _, place in declared:
        assert callable(feature.load(f"{each.package}.{place}"))


def test_a_shared_budget_that_nothing_can_ask_allows_nothing(
    edison: Edison, mini: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = "shared_budget: {url_env: SITE_URL, token_env: SITE_TOKEN}\n"
    mini.write("edison.yaml", MINIMAL["edison.yaml"] + shared)
    monkeypatch.setenv(feature.WITHOUT, "site")
    done = edison(mini, "run")
    assert done.code == 2
    assert "shared_budget of edison.yaml cannot be asked" in done.err
    assert "the feature site is switched off by EDISON_WITHOUT=site" in done.err


def test_a_server_has_the_duties_of_the_features_that_are_on(
    mini: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    mini.write("edison.yaml", MINIMAL["edison.yaml"] + "settings: {retention_days: 30}\n")
    site = open_site(mini.path)
    assert {duty.name for duty in duties_of(site)} == {
        "alerts",
        "all alerts",
        "retention",
        "backup",
    }
    monkeypatch.setenv(feature.WITHOUT, "monitor")
    assert {duty.name for duty in duties_of(site)} == {"retention", "backup"}


def test_every_page_and_form_that_a_feature_declares_is_there() -> None:
    places = [page.place for page in feature.pages()] + [form.place for form in feature.forms()]
    assert len(places) > 30
    assert all(callable(feature.load(place)) for place in places)
    assert len({page.path for page in feature.pages()}) == len([*feature.pages()])
    assert len({form.path for form in feature.forms()}) == len([*feature.forms()])
    assert {entry.role for entry in feature.forms()} <= {"reviewer", "editor"}


def test_a_simulated_model_needs_its_feature(
    edison: Edison, mini: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(feature.WITHOUT, "simulator")
    done = edison(mini, "run")
    assert done.code == 2
    assert "model 'small' is simulated" in done.err
    assert "the feature simulator is switched off by EDISON_WITHOUT=simulator" in done.err


def test_keys_of_a_feature_that_is_off_are_accepted_and_named(
    edison: Edison, mini: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = "schedule: [{name: daily, cron: often}]\nalerts: 5\n"
    mini.write("experiments/hello.yaml", MINIMAL["experiments/hello.yaml"] + keys)
    assert edison(mini, "validate").code == 2
    monkeypatch.setenv(feature.WITHOUT, "monitor")
    done = edison(mini, "validate", "--strict")
    assert (done.code, done.out) == (0, "")
    assert "off or not installed: alerts (monitor), schedule (monitor)\n" in done.err
    mini.edit("experiments/hello.yaml", "alerts", "alert")
    assert "unknown key 'alert'" in edison(mini, "validate").out
    assert mini.read("experiments/hello.yaml").count("often") == 1


def test_a_switched_off_feature_changes_no_plan(
    edison: Edison, mini: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = "schedule: [{name: daily, cron: 0 9 * * *}]\nrefine: {by: judge}\n"
    mini.write("experiments/hello.yaml", MINIMAL["experiments/hello.yaml"] + keys)

    def plan_hash() -> str:
        planned = json.loads(edison(mini, "plan", "--json").out)["experiments"]
        return str(planned[0]["plan_hash"])

    before = plan_hash()
    monkeypatch.setenv(feature.WITHOUT, ",".join(set(NAMES) - {"simulator"}))
    assert plan_hash() == before


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("shared_budget", "{url_env: 5}"),
        ("cache", "{url_env: 5}"),
        ("notifications", "[{name: 5}]"),
        ("settings", "{approvals: 0}"),
    ],
)
def test_a_key_that_protects_is_read_without_any_feature(
    edison: Edison, mini: Folder, monkeypatch: pytest.MonkeyPatch, key: str, value: str
) -> None:
    monkeypatch.setenv(feature.WITHOUT, ",".join(NAMES))
    mini.write("edison.yaml", MINIMAL["edison.yaml"] + f"{key}: {value}\n")
    done = edison(mini, "validate")
    assert done.code == 2 and "edison.yaml:" in done.out


KEYS_THAT_PROTECT = {"gates", "stop", "safety", "refine", "max_errors", "split", "judges", "checks"}
"""Keys of experiments that limit, or decide, whatever is installed."""


def test_features_own_keys_and_tables_that_are_there(tmp_path: Path) -> None:
    keys = [key for each in FEATURES for key in each.keys]
    known = {f"experiment.{key}" for key in ExperimentFile.key_names()}
    assert set(keys) <= known and len(set(keys)) == len(keys)
    assert not {f"experiment.{key}" for key in KEYS_THAT_PROTECT} & set(keys)
    tables = [table for each in FEATURES for table in each.tables]
    with closing(open_database(tmp_path / "results.db")) as connection:
        made = {row[0] for row in connection.execute("select name from sqlite_schema")}
    assert set(tables) <= made and len(set(tables)) == len(tables)


@pytest.mark.daily
def test_the_demo_leaves_out_the_steps_of_features_that_are_off(
    edison: Edison, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(feature.WITHOUT, "refine")
    done = edison(folder, "demo")
    assert done.code == 0
    assert "$ edison run" in done.err and "$ edison refine" not in done.err
