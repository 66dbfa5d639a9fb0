"""What became of what a base gates: followed under another name, or dropped."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from edison_ci import load_project
from edison_ci.plan.baseline import (
    counterparts,
    dropped_experiments,
    held_to_the_stricter,
    successors,
)
from tests.conftest import Folder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HELLO = "Greet the customer {{ name }} by name, in one friendly sentence, and add nothing else."
BYE = "Summarise the complaint of {{ name }} for the warehouse, as a list of facts and dates."
EXPERIMENT = """\
experiment: {name}
objective: Greet people by their name in a friendly way.
prompts: [{prompts}]
models: [{models}]
dataset: datasets/names.jsonl
checks:
  - contains: "{{{{ expected }}}}"
  - words: {{max: 40}}
gates:
  - {{metric: composite, no_worse_than: base, margin: 10pp}}
"""


def experiment(
    folder: Folder, *, name: str = "greet", prompts: str = "hello", models: str = "small"
) -> None:
    paths = ", ".join(f"prompts/{each}.md" for each in prompts.split(", "))
    text = EXPERIMENT.format(name=name, prompts=paths, models=models)
    folder.write(f"experiments/{name}.yaml", text)


@pytest.fixture
def base(tmp_path: Path) -> Folder:
    (tmp_path / "base").mkdir()
    folder = Folder(tmp_path / "base")
    folder.write("edison.yaml", "version: 1\nproject: greetings\n")
    folder.write(
        "models.yaml",
        "small: {provider: sim, model: small}\nlarge: {provider: sim, model: large}\n",
    )
    folder.write("datasets/names.jsonl", '{"id": "ada", "name": "Ada", "expected": "Ada"}\n')
    folder.write("prompts/hello.md", HELLO)
    folder.write("prompts/bye.md", BYE)
    experiment(folder, prompts="hello, bye", models="small, large")
    return folder


def move(folder: Folder, old: str, new: str) -> None:
    shutil.move(folder.path / old, folder.path / new)


def rename_a_prompt(folder: Folder) -> None:
    move(folder, "prompts/hello.md", "prompts/welcome.md")
    folder.edit("prompts/welcome.md", ", and add nothing else", " now")
    experiment(folder, prompts="welcome, bye", models="small, large")


def rewrite_a_prompt_under_another_name(folder: Folder) -> None:
    move(folder, "prompts/hello.md", "prompts/new.md")
    folder.write("prompts/new.md", "Say hi to {{ name }}.")
    experiment(folder, prompts="bye, new", models="small, large")


def copy_a_prompt(folder: Folder) -> None:
    """Measure a copy of the good text, and spoil the file that others read."""
    shutil.copy(folder.path / "prompts/hello.md", folder.path / "prompts/decoy.md")
    folder.write("prompts/hello.md", "Be rude to {{ name }}.")
    experiment(folder, prompts="decoy, bye", models="small, large")


def copy_a_prompt_under_its_own_name(folder: Folder) -> None:
    folder.write("other/hello.md", HELLO)
    folder.write("prompts/hello.md", "Be rude to {{ name }}.")
    folder.edit("experiments/greet.yaml", "prompts/hello.md", "other/hello.md")


def drop_a_prompt(folder: Folder) -> None:
    experiment(folder, prompts="bye", models="small, large")


def drop_a_model(folder: Folder) -> None:
    experiment(folder, prompts="hello, bye", models="large")


def rename_a_model(folder: Folder) -> None:
    folder.edit("models.yaml", "small: {", "tiny: {")
    experiment(folder, prompts="hello, bye", models="tiny, large")


def replace_a_model(folder: Folder) -> None:
    folder.write("models.yaml", folder.read("models.yaml") + "tiny: {provider: sim, model: echo}\n")
    experiment(folder, prompts="hello, bye", models="tiny, large")


def change_parameters(folder: Folder) -> None:
    use = "{use: small, params: {temperature: 0.2}}"
    experiment(folder, prompts="hello, bye", models=f"{use}, large")


def ask_for_less(folder: Folder) -> None:
    folder.write("prompts/bye.md", f"---\nexpect: none\n---\n{BYE}")


CHANGES: list[tuple[Callable[[Folder], None], list[str], list[str]]] = [
    (rename_a_prompt, ["prompt hello is now welcome"], []),
    (rewrite_a_prompt_under_another_name, ["prompt hello is now new"], []),
    (copy_a_prompt, ["prompt hello is now decoy"], ["prompts/hello.md is still there"]),
    (copy_a_prompt_under_its_own_name, [], ["prompts/hello.md is still there"]),
    (drop_a_prompt, [], ["prompt hello is no longer measured"]),
    (drop_a_model, [], ["model small is no longer measured"]),
    (rename_a_model, ["model small is now tiny"], []),
    (replace_a_model, ["model small is now tiny"], ["model small is still there"]),
    (change_parameters, ["model small is now small[temperature=0.2]"], []),
    (ask_for_less, [], ["answers to bye need no longer be json"]),
]


@pytest.mark.parametrize(
    ("change", "replaced", "dropped"), CHANGES, ids=[change.__name__ for change, _, _ in CHANGES]
)
def test_what_took_the_place_is_followed_and_what_is_not_measured_is_dropped(
    base: Folder,
    tmp_path: Path,
    change: Callable[[Folder], None],
    replaced: list[str],
    dropped: list[str],
) -> None:
    if change is ask_for_less:
        base.write("prompts/bye.md", f"---\nexpect: json\n---\n{BYE}")
    head = Folder(shutil.copytree(base.path, tmp_path / "head"))
    change(head)
    old, new = load_project(base.path), load_project(head.path)
    found = counterparts(old.experiments["greet"], new, new.experiments["greet"])
    assert list(found.replaced) == replaced
    assert len(found.dropped) == len(dropped), found.dropped
    assert all(part in said for part, said in zip(dropped, found.dropped, strict=True))
    assert dropped_experiments(old, new) == []


AS_JSON = f"{BYE} Answer in JSON.\n"


@pytest.mark.parametrize(
    ("base_text", "head_text", "note", "dropped", "held"),
    [
        # Found in the text of one side only: a note, and both are held to it.
        (AS_JSON, BYE, "asks for json, that of the head for none", "", ("json", "json")),
        (BYE, AS_JSON, "asks for none, that of the head for json", "", ("json", "json")),
        (f"{BYE} Put it in <response> tags.", AS_JSON, "asks for response, that", "",
         ("response+json", "response+json")),
        # Written: it is a promise.
        (f"---\nexpect: json\n---\n{BYE}", BYE, "", "need no longer be json", ("json", "json")),
        (f"---\noutput: {{}}\n---\n{BYE}", BYE, "", "need no longer be json", ("json", "json")),
        (BYE, f"---\nexpect: json\n---\n{BYE}", "", "", ("json", "json")),
        # What the head writes holds where the base only says it in words; it decides nothing.
        (AS_JSON, f"---\nexpect: none\n---\n{BYE}", "", "need no longer be json", ("none", "none")),
        (BYE, BYE, "", "", ("none", "none")),
    ],
)  # fmt: skip
def test_both_sides_are_held_to_the_stricter_form(
    base: Folder,
    tmp_path: Path,
    base_text: str,
    head_text: str,
    note: str,
    dropped: str,
    held: tuple[str, str],
) -> None:
    head = Folder(shutil.copytree(base.path, tmp_path / "head"))
    base.write("prompts/bye.md", base_text)
    head.write("prompts/bye.md", head_text)
    old, new = load_project(base.path), load_project(head.path)
    before, after = old.experiments["greet"], new.experiments["greet"]
    found = counterparts(before, new, after)
    assert [note in sentence for sentence in found.held] == [True] * bool(note)
    assert [dropped in sentence for sentence in found.dropped] == [True] * bool(dropped)
    sides = held_to_the_stricter(after, before)
    forms = [next(p.expect for p in side.prompts if p.id == "bye") for side in sides]
    assert tuple(forms) == held


def rename_it(folder: Folder) -> None:
    move(folder, "experiments/greet.yaml", "experiments/other.yaml")
    folder.edit("experiments/other.yaml", "experiment: greet", "experiment: other")
    folder.edit("experiments/other.yaml", "margin: 10pp", "margin: 90pp")


def archive_it(folder: Folder) -> None:
    folder.edit("experiments/greet.yaml", "objective:", "archived: true\nobjective:")


def rename_it_and_its_prompts(folder: Folder) -> None:
    rename_a_prompt(folder)
    drop_a_prompt(folder)
    rename_it(folder)
    folder.edit("experiments/other.yaml", "prompts/bye.md", "prompts/welcome.md")


def archive_it_behind_a_copy(folder: Folder) -> None:
    folder.write(
        "experiments/other.yaml",
        folder.read("experiments/greet.yaml").replace("experiment: greet", "experiment: other"),
    )
    archive_it(folder)


def hide_it(folder: Folder) -> None:
    move(folder, "experiments/greet.yaml", "experiments/.greet.yaml")
    experiment(folder, name="unrelated", prompts="fresh", models="small")
    folder.write("prompts/fresh.md", "Translate {{ name }} into French and Dutch.")


def look_elsewhere(folder: Folder) -> None:
    folder.write("edison.yaml", "version: 1\nproject: greetings\npaths: {experiments: aside}\n")
    hide_it(folder)
    move(folder, "experiments", "aside")


@pytest.mark.parametrize(
    ("change", "followed", "dropped"),
    [
        (rename_it, True, False),
        (rename_it_and_its_prompts, True, False),
        (archive_it, False, True),
        (archive_it_behind_a_copy, True, True),
        (hide_it, False, True),
        (look_elsewhere, False, True),
    ],
)
def test_an_experiment_goes_on_under_another_name_or_is_dropped(
    base: Folder,
    tmp_path: Path,
    change: Callable[[Folder], None],
    followed: bool,
    dropped: bool,
) -> None:
    head = Folder(shutil.copytree(base.path, tmp_path / "head"))
    change(head)
    old, new = load_project(base.path), load_project(head.path)
    assert successors(old, new) == ({"other": "greet"} if followed else {})
    assert [e.id for e in dropped_experiments(old, new)] == (["greet"] if dropped else [])


def test_what_the_base_does_not_gate_may_go(base: Folder, tmp_path: Path) -> None:
    text = base.read("experiments/greet.yaml")
    base.write("experiments/greet.yaml", text[: text.index("gates:")])
    base.write("experiments/old.yaml", text.replace("greet", "old").replace(
        "objective:", "archived: true\nobjective:"))  # fmt: skip
    head = Folder(shutil.copytree(base.path, tmp_path / "head"))
    hide_it(head)
    (head.path / "experiments/old.yaml").unlink()
    assert dropped_experiments(load_project(base.path), load_project(head.path)) == []
