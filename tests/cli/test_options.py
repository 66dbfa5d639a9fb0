"""Shared options: before or after the command, by flag or by variable."""

from __future__ import annotations

import dataclasses
import inspect
import json
import logging
import os
from typing import TYPE_CHECKING

import pytest

from edison_ci import feature
from edison_ci.cli.groups import GROUPS, commands
from edison_ci.cli.options import SHARED_NAMES, shared_options

if TYPE_CHECKING:
    from collections.abc import Callable

    import click

    from tests.cli.conftest import Edison
    from tests.conftest import Folder, Result

pytestmark = pytest.mark.daily


def test_these_are_the_shared_options() -> None:
    assert sorted(str(name) for name in SHARED_NAMES) == [
        "debug",
        "directory",
        "json",
        "log_days",
        "log_file",
        "log_json",
        "no_color",
        "offline",
        "quiet",
        "verbose",
    ]


@pytest.mark.parametrize("option", shared_options(), ids=lambda o: str(o.name))
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_every_shared_option_is_taken_before_and_after_the_command(
    edison: Edison, mini: Folder, option: object, after: bool
) -> None:
    flag = option.opts[-1]  # type: ignore[attr-defined]  # an option of click
    values = {"--directory": str(mini.path), "--log-file": "edison.log", "--log-days": "7"}
    words = [flag, values[flag]] if flag in values else [flag]
    args = ["validate", *words] if after else [*words, "validate"]
    assert edison(mini, *args).code == 0


@pytest.mark.parametrize(
    "args",
    [
        ["--json", "models", "list"],
        ["models", "--json", "list"],
        ["models", "list", "--json"],
        ["models", "--json"],
    ],
)
def test_a_command_below_a_command_takes_them_at_every_level(
    edison: Edison, mini: Folder, args: list[str]
) -> None:
    done = edison(mini, *args)
    assert [model["name"] for model in json.loads(done.out)["models"]] == ["small", "judge"]


# --- the folder -----------------------------------------------------------------------------------


@pytest.mark.parametrize("args", [["-C", "mini", "validate"], ["validate", "-C", "mini"]])
def test_the_folder_is_where_the_command_works(
    edison: Edison, mini: Folder, args: list[str]
) -> None:
    (mini.path / "mini").mkdir()
    for path in list(mini.path.iterdir()):
        if path.name != "mini":
            path.rename(mini.path / "mini" / path.name)
    assert edison(mini, *args).code == 0
    assert edison(mini, "validate").code == 2


def test_a_project_is_found_from_any_folder_below_it(edison: Edison, mini: Folder) -> None:
    below = type(mini)(mini.path / "prompts")
    assert edison(below, "validate").code == 0
    mini.edit("prompts/hello.md", "id: hello", "id: hallo")
    said = edison(below, "validate").out
    assert said.startswith("hello.md:2:5: error: id is 'hallo'")


def test_places_are_named_as_seen_from_the_folder_we_work_in(edison: Edison, mini: Folder) -> None:
    mini.edit("models.yaml", "small: {provider: sim", "small: {provider: simm")
    below = type(mini)(mini.path / "prompts")
    assert edison(below, "validate").out.startswith("../models.yaml:1:")
    assert edison(below, "-C", "..", "validate").out.startswith("models.yaml:1:")
    named = json.loads(edison(below, "validate", "--json").out)["problems"][0]["file"]
    assert named == "models.yaml"


@pytest.mark.parametrize("place", ["nowhere", "edison.yaml"])
def test_a_folder_that_is_none_is_refused(edison: Edison, mini: Folder, place: str) -> None:
    done = edison(mini, "-C", place, "validate")
    assert done.code == 2
    assert place in done.err


def test_other_paths_are_relative_to_the_folder_too(edison: Edison, mini: Folder) -> None:
    above = type(mini)(mini.path.parent)
    name = mini.path.name
    mini.write(
        "new.json", json.dumps({"models": {"sim/x": {"in": 1, "out": 2}}, "date": "2026-01-01"})
    )
    assert edison(above, "-C", name, "validate", "prompts/hello.md").code == 0
    assert edison(above, "-C", name, "admin", "prices", "update", "--from", "new.json").code == 0
    assert edison(above, "-C", name, "init", "below").code == 0
    assert (mini.path / "below" / "edison.yaml").is_file()


# --- how much is said -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "args",
    [
        ["validate"],
        ["plan"],
        ["plan", "--loop"],
        ["try", "--dry-run", "hello"],
        ["models", "list"],
        ["admin", "prices"],
        ["admin", "prices", "show", "gpt-4o-mini"],
        ["doctor"],
        ["admin", "schema"],
        ["init", "new"],
    ],
    ids=" ".join,
)
def test_quiet_prints_nothing_when_all_is_well(
    edison: Edison, mini: Folder, args: list[str]
) -> None:
    done = edison(mini, *args, "-q")
    assert (done.out, done.err, done.code) == ("", "", 0)


def test_quiet_keeps_errors_and_drops_warnings(edison: Edison, mini: Folder) -> None:
    mini.edit("models.yaml", "small: {", "odd: {provider: ollama, model: x}\nsmall: {")
    warned = edison(mini, "-q", "validate")
    assert (warned.all, warned.code) == ("", 0)
    mini.edit("edison.yaml", "version: 1", "version: 2")
    failed = edison(mini, "-q", "validate")
    assert failed.out == ""
    assert failed.err.startswith("edison.yaml:1:10: error:")
    assert "warning" not in failed.err
    assert failed.code == 2


@pytest.mark.parametrize(
    ("args", "start"),
    [
        (["validate", "--json"], "{"),
        (["plan", "--shards", "2"], '{"include"'),
        (["admin", "schema", "rubric"], "{"),
        (["admin", "completion", "bash"], "_edison_completion"),
    ],
)
def test_quiet_keeps_what_another_program_reads(
    edison: Edison, mini: Folder, args: list[str], start: str
) -> None:
    assert edison(mini, *args, "-q").out.lstrip().startswith(start)


@pytest.mark.parametrize("args", [["-v", "validate"], ["validate", "-v"], ["validate", "--debug"]])
def test_verbose_says_which_project_was_found(
    edison: Edison, mini: Folder, args: list[str]
) -> None:
    done = edison(mini, *args)
    assert f"info: project (root={mini.path.resolve()})" in done.err
    assert done.out == ""


@pytest.mark.parametrize(
    ("args", "level"),
    [
        (["validate"], logging.WARNING),
        (["-v", "validate"], logging.INFO),
        (["-vv", "validate"], logging.DEBUG),
        (["-v", "validate", "-v"], logging.DEBUG),
        (["-q", "validate"], logging.ERROR),
        (["-q", "validate", "--debug"], logging.DEBUG),
    ],
)
def test_levels_of_the_log(edison: Edison, mini: Folder, args: list[str], level: int) -> None:
    edison(mini, *args)
    assert logging.getLogger("edison_ci").level == level


def test_the_log_as_json_is_one_object_a_line(edison: Edison, mini: Folder) -> None:
    done = edison(mini, "-v", "--log-json", "validate")
    logged = [json.loads(line) for line in done.err.splitlines() if line.startswith("{")]
    assert logged[0]["message"] == "project"
    assert logged[0]["level"] == "info"
    assert logged[0]["root"] == str(mini.path.resolve())
    assert logged[0]["time"].endswith("Z")


def test_a_log_line_shows_no_secret_and_no_escape(edison: Edison, mini: Folder) -> None:
    key = "sk-proj-" + "a1B2" * 8
    for args in (["-v"], ["-v", "--log-json"]):
        edison(mini, *args, "validate")
        handler = logging.getLogger("edison_ci").handlers[0]
        record = logging.makeLogRecord(
            {"name": "x", "levelname": "INFO", "msg": "said", "reason": f"\n{key}\x1b[31m"}
        )
        shown = handler.format(record)
        assert key not in shown
        assert "\x1b" not in shown
        assert "\n" not in shown
        assert "reason" in shown


# --- variables ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "sees"),
    [
        ("EDISON_JSON", "1", lambda done: done.out.startswith("{")),
        ("EDISON_QUIET", "true", lambda done: done.all == ""),
        ("EDISON_VERBOSE", "1", lambda done: "info: project" in done.err),
        ("EDISON_DEBUG", "yes", lambda done: "info: project" in done.err),
        ("EDISON_OFFLINE", "1", lambda done: done.code == 0),
        ("EDISON_NO_COLOR", "1", lambda done: "\x1b" not in done.all),
    ],
)
def test_a_variable_stands_for_a_flag(
    edison: Edison,
    mini: Folder,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: str,
    sees: Callable[[Result], bool],
) -> None:
    monkeypatch.setenv(name, value)
    assert sees(edison(mini, "validate"))


def test_the_folder_may_come_from_a_variable(
    edison: Edison, mini: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDISON_DIRECTORY", str(mini.path))
    assert edison(type(mini)(mini.path.parent), "validate").code == 0


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_flag_beats_a_variable_wherever_it_stands(
    edison: Edison, mini: Folder, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    monkeypatch.setenv("EDISON_DIRECTORY", os.sep)
    words = ["-C", str(mini.path)]
    args = ["validate", *words] if after else [*words, "validate"]
    assert edison(mini, *args).code == 0


def test_an_empty_variable_says_nothing(
    edison: Edison, mini: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDISON_JSON", "")
    assert edison(mini, "validate").out == ""


def test_a_variable_that_makes_no_sense_is_named(
    edison: Edison, mini: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDISON_VERBOSE", "loud")
    done = edison(mini, "validate")
    assert done.code == 2
    assert "loud" in done.err


def test_an_option_of_one_command_has_a_variable_too(
    edison: Edison, mini: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDISON_PLAN_SHARDS", "3")
    for args, count in (([], "3"), (["--shards", "2"], "2")):
        rows = json.loads(edison(mini, "plan", *args).out)["include"]
        assert {row["shard"].partition("/")[2] for row in rows} == {count}


def test_a_variable_beats_the_default_of_an_option(
    edison: Edison, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDISON_INIT_TEMPLATE", "code-generation")
    made = json.loads(edison(folder, "init", "--json").out)
    assert made["template"] == "code-generation"


def all_commands() -> dict[str, click.Command]:
    """Return every command of the program and of its features, by its words."""
    nested = (name for built_in in feature.features() for name in built_in.commands if " " in name)
    groups = {"", *GROUPS, *(name.rpartition(" ")[0] for name in nested)}
    return {
        f"{group} {name}".strip(): feature.load(entry.place)
        for group in groups
        for name, entry in commands(group).items()
    }


def test_every_command_takes_what_its_options_give() -> None:
    """Neither the checker of types nor --help sees an option that the function does not take."""
    wrong = {}
    for words, command in all_commands().items():
        callback = command.callback
        if callback is None:
            continue
        options = {param.name for param in command.params if param.expose_value}
        taken = [*inspect.signature(inspect.unwrap(callback)).parameters.values()]
        names = {p.name for p in taken} - {"state", "ctx"}
        if (record := getattr(callback, "takes", None)) is not None:
            names = {field.name for field in dataclasses.fields(record)}
        elif any(p.kind is p.VAR_KEYWORD for p in taken):
            continue
        if names != options:
            wrong[words] = names ^ options
    assert wrong == {}
