"""Attacks on the gate: the prompt is worse, and what measures it is changed so that it passes.

Every head has the worse prompt. A move is one change beside it; variants are single moves, and
made-up ones several together.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml

from tests.redteam.attack import Attack, Variant
from tests.redteam.bench import BAD, GOOD, PROMPT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    from tests.redteam.bench import Scene

    Move = Callable[["Head"], None]

PLAIN = PROMPT.replace("id: hello", "id: plain")


@dataclass
class Head:
    """The project of the head, as moves change it before it is written."""

    scene: Scene
    experiment: dict[str, Any]
    file: str = "experiments/hello.yaml"
    prompt: str = "hello"
    model: str = "small"
    project: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, scene: Scene) -> Head:
        written = yaml.safe_load(scene.read("experiments/hello.yaml"))
        return cls(scene, written, project=yaml.safe_load(scene.read("edison.yaml")))

    def path_of(self, prompt: str) -> str:
        return f"prompts/{prompt}.md"

    def save(self) -> None:
        scene = self.scene
        (scene.path / "experiments/hello.yaml").unlink()
        if self.file:
            scene.write(self.file, json.dumps(self.experiment))
        scene.write("edison.yaml", json.dumps(self.project))


def _base(scene: Scene) -> None:
    """Gate two prompts in one experiment, and have another one that gates nothing."""
    text = scene.read("experiments/hello.yaml")
    beside = text.split("gates:")[0].replace("experiment: hello", "experiment: beside")
    scene.write("experiments/beside.yaml", beside.replace("prompts/hello", "prompts/plain"))
    scene.write("prompts/plain.md", PLAIN.format(text=GOOD))
    scene.write("experiments/hello.yaml", text.replace("hello.md]", "hello.md, prompts/plain.md]"))


# --- not measured any more ------------------------------------------------------------------------


def archive(head: Head) -> None:
    head.experiment["archived"] = True


def delete(head: Head) -> None:
    head.file = ""


def rename_experiment(head: Head) -> None:
    head.experiment["experiment"] = "other"
    head.file = "experiments/other.yaml"


def hide_experiment(head: Head) -> None:
    head.file = "experiments/hello.yaml.txt"


def move_experiments(head: Head) -> None:
    head.file = "elsewhere/hello.yaml"
    head.project["paths"] = {"experiments": "experiments"}


def other_folder(head: Head) -> None:
    """Measure a copy in which everything is well, in another folder."""
    head.scene.write("good/plain.yaml", json.dumps(_copy(head, "plain", ["prompts/plain.md"])))
    head.project["paths"] = {"experiments": "good"}


def _copy(head: Head, name: str, prompts: list[str]) -> dict[str, Any]:
    return {**head.experiment, "experiment": name, "prompts": prompts}


def rename_prompt(head: Head) -> None:
    old, head.prompt = head.path_of(head.prompt), "other"
    text = head.scene.read(old).replace("id: hello", "id: other")
    (head.scene.path / old).unlink()
    head.scene.write(head.path_of("other"), text)
    kept = [path for path in head.experiment["prompts"] if path != old]
    head.experiment["prompts"] = [head.path_of("other"), *kept]


def reword_and_rename(head: Head) -> None:
    """Leave so little of the prompt that it is not known again."""
    rename_prompt(head)
    text = f"---\nid: other\n---\n# user\n{{{{ name }}}}: {BAD} Thanks.\n"
    head.scene.write(head.path_of("other"), text)


def drop_prompt(head: Head) -> None:
    head.experiment["prompts"] = ["prompts/plain.md"]


def good_copy(head: Head) -> None:
    """Measure a good copy, and leave the worse file where everybody uses it."""
    text = PROMPT.replace("id: hello", "id: copy").format(text=GOOD)
    head.scene.write("prompts/copy.md", text)
    head.experiment["prompts"] = ["prompts/copy.md", "prompts/plain.md"]


def swap_prompts(head: Head) -> None:
    """Let the good prompt have the name of the worse one, and the other way round."""
    head.scene.write("prompts/hello.md", PROMPT.format(text=GOOD))
    head.scene.write("prompts/plain.md", PLAIN.format(text=BAD))


def same_id_elsewhere(head: Head) -> None:
    """Measure a good file of the same id in another folder."""
    head.scene.write("prompts/good/hello.md", PROMPT.format(text=GOOD))
    head.experiment["prompts"] = ["prompts/good/hello.md", "prompts/plain.md"]


def rename_model(head: Head) -> None:
    head.scene.edit("models.yaml", "small:", "tiny:")
    head.experiment["models"] = ["tiny"]


def rename_dataset(head: Head) -> None:
    scene = head.scene
    rows = scene.read("datasets/names.jsonl").splitlines(keepends=True)
    (scene.path / "datasets/names.jsonl").unlink()
    scene.write("datasets/others.jsonl", "".join(rows))
    head.experiment["dataset"] = "datasets/others.jsonl"


def nested_project(head: Head) -> None:
    head.scene.write("experiments/edison.yaml", "version: 1\nproject: other\n")


# --- measured by less -----------------------------------------------------------------------------


def cut_dataset(head: Head) -> None:
    path = head.scene.path / head.experiment.get("dataset", "datasets/names.jsonl")
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:2]))


def other_cases(head: Head) -> None:
    """Let no case have the id of a case of the base."""
    path = head.scene.path / head.experiment.get("dataset", "datasets/names.jsonl")
    path.write_text(path.read_text().replace('"c', '"z'))


def take_few(head: Head) -> None:
    path = head.experiment.pop("dataset", "datasets/names.jsonl")
    head.experiment["datasets"] = [{"path": path, "take": 2}]


def quarantine(head: Head) -> None:
    entry = "experiment: hello, reason: flaky, since: 2026-01-01, until: 2999-01-01, owner: eve"
    rows = "".join(f"  - {{case: c{number}, {entry}}}\n" for number in range(39))
    head.scene.write("quarantine.yaml", f"version: 1\ncases:\n{rows}")


def no_gates(head: Head) -> None:
    head.experiment["gates"] = []


def wide_margin(head: Head) -> None:
    head.experiment["gates"] = [
        {"metric": "composite", "no_worse_than": "base", "margin": "100pp", "confidence": "50%"}
    ]


def other_gate(head: Head) -> None:
    head.experiment["gates"] = [{"metric": "errors", "at_most": "100%"}]


def no_checks(head: Head) -> None:
    head.experiment["checks"] = [{"chars": {"min": 1}}]


def lenient_checks(head: Head) -> None:
    head.experiment["checks"] = [{"chars": {"min": 1, "weight": 1}}, {"contains": "Welcome"}]


def inverted_check(head: Head) -> None:
    head.experiment["checks"] = [{"not": {"contains": "Welcome"}}]


def errors_are_fine(head: Head) -> None:
    head.experiment["max_errors"] = "100%"


def missing_variable(head: Head) -> None:
    """Use a variable that one case has, so that all others are left out."""
    path = head.scene.path / head.experiment.get("dataset", "datasets/names.jsonl")
    path.write_text(path.read_text() + '{"id": "one", "name": "One", "more": "x"}\n')
    for prompt in ("hello", head.prompt):
        place = head.scene.path / head.path_of(prompt)
        if place.exists():
            place.write_text(place.read_text() + "{{ more }}\n")


def no_budget(head: Head) -> None:
    head.experiment["stop"] = {"budget_usd": 0.01}


def more_repeats(head: Head) -> None:
    head.experiment["repeats"] = 2


def hide_files(head: Head) -> None:
    """Have Git show the folders of experiments and prompts as binary, or not at all."""
    head.scene.write(".gitattributes", "experiments/** -diff export-ignore\nprompts/** binary\n")
    head.scene.write(".gitignore", "*\n")


GONE: tuple[Move, ...] = (
    archive, delete, rename_experiment, hide_experiment, move_experiments, other_folder,
    rename_prompt, reword_and_rename, drop_prompt, good_copy, swap_prompts, same_id_elsewhere,
    rename_model, rename_dataset, nested_project,
)  # fmt: skip
LESS: tuple[Move, ...] = (
    cut_dataset, other_cases, take_few, quarantine, no_gates, wide_margin, other_gate, no_checks,
    lenient_checks, inverted_check, errors_are_fine, missing_variable, no_budget, more_repeats,
    hide_files,
)  # fmt: skip


def _variant(*moves: Move) -> Variant:
    def change(scene: Scene) -> None:
        scene.worsen()
        head = Head.of(scene)
        for move in moves:
            move(head)
        head.save()

    name = " + ".join(move.__name__ for move in moves) or "no move"
    return Variant(name, change, _base, must="" if moves else "fail")


def _good(scene: Scene) -> None:
    scene.write("prompts/hello.md", PROMPT.format(text=f"{GOOD} Be brief."))


def _fixed() -> Iterator[Variant]:
    yield _variant()
    yield Variant("a good prompt", _good, _base, may_pass=True, must="pass")
    for move in (*GONE, *LESS):
        yield _variant(move)


def _made(random: Random) -> Variant:
    moves = random.sample(GONE, random.choice([0, 1, 1]))
    moves += random.sample(LESS, random.choice([1, 2]) if moves else 3)
    random.shuffle(moves)
    # What renames files comes first, so that the others find them.
    return _variant(*sorted(moves, key=lambda move: move not in GONE))


ATTACKS = (
    Attack(
        "gates",
        "a worse prompt does not pass, whatever is done to what measures it",
        _fixed,
        _made,
    ),
)
