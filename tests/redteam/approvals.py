"""Attacks on approvals: what a project uses is changed by one person alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.redteam.attack import Attack, Variant

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from tests.redteam.attack import Change
    from tests.redteam.bench import Scene

SETTINGS = (
    "version: 1\nproject: greetings\nsettings: {approvals: 2}\nmembers:\n"
    "  - {github: ada, role: owner}\n  - {github: bob, role: reviewer}\n"
)
FOLDERS = ("shared", "a b", ".hidden", "deep/er/still", "Prompts", "src/prompts", "doc")
USED = {
    "reply.md": "---\noutput: {folder}/answer.json\n---\n# user\nGreet {{{{ name }}}}.\n",
    "answer.json": '{{"type": "object"}}',
    "grader.md": "---\ntype: grader\n---\n# user\nIs {{{{ output }}}} polite? 0 to 1.\n",
    "cases.jsonl": '{{"id": "a", "input": {{"name": "Ada"}}, "expected": "Ada"}}\n',
    "check.py": "def check(output):\n    return True\n",
    "form.json": '{{"type": "object"}}',
    "warm.yaml": (
        "rubric: warm\ncriteria:\n"
        "  - {{name: Warmth, description: Sounds friendly and warm., weight: 0.5}}\n"
        "  - {{name: Brevity, description: One short sentence only., weight: 0.5}}\n"
    ),
    "app/run.py": "",
    "app/.mode": "",
}
"""Files that an experiment of the base uses, in a folder of its own choice."""
MODELS = (
    "app: {{provider: command, options: {{run: [python3, '{folder}/app/run.py'], "
    "files: ['{folder}/app']}}}}\n"
)
EXPERIMENT = (
    "experiment: elsewhere\nobjective: Greet people by their name in a friendly way.\n"
    "prompts: ['{folder}/reply.md']\nmodels: [small, app]\ndataset: '{folder}/cases.jsonl'\n"
    "checks:\n  - python: '{folder}/check.py:check'\n  - json_schema: '{folder}/form.json'\n"
    "rubric: '{folder}/warm.yaml'\n"
    "judges: {{pointwise: [small], graders: [{{prompt: '{folder}/grader.md', by: small}}]}}\n"
)
ALWAYS = (
    "prompts/hello.md", "experiments/hello.yaml", "datasets/names.jsonl", "models.yaml",
    "edison.yaml", ".edison/trust.yaml", "quarantine.yaml", "judges/pointwise.md",
    "prompts/new.md", "experiments/new.yaml", "rubrics/new.yaml",
)  # fmt: skip
STATUSES = ("modified", "removed", "renamed", "added", "changed", "copied")
UNUSED = ("README.md", "docs/x.md", "unused/reply.md")


def base(folder: str) -> Change:
    """Return a base that uses files of this folder and asks for two approvals."""

    def write(scene: Scene) -> None:
        scene.write("edison.yaml", SETTINGS)
        scene.add("models.yaml", MODELS.format(folder=folder))
        scene.write("experiments/elsewhere.yaml", EXPERIMENT.format(folder=folder))
        for name, text in USED.items():
            scene.write(f"{folder}/{name}", text.format(folder=folder))

    return write


def changed(path: str, status: str, *, hides: bool) -> Change:
    """Return a head that changes a file, and may say that the project uses none of it."""

    def write(scene: Scene) -> None:
        listed: dict[str, Any] = {"filename": path, "status": status}
        if status == "renamed":
            listed = {"filename": "README.md", "status": status, "previous_filename": path}
        readme = {"filename": "CHANGES.md", "status": "modified"}
        scene.site.github.state.pulls[1].files = [readme, listed]
        if hides:
            for name in ("experiments/elsewhere.yaml", "experiments/hello.yaml"):
                (scene.path / name).unlink(missing_ok=True)
            scene.edit("edison.yaml", "approvals: 2", "approvals: 1")
        scene.write(path, "changed\n")

    return write


def _variant(folder: str, path: str, status: str, *, hides: bool, must: str = "fail") -> Variant:
    name = f"{path} {status}{', the head uses it no more' if hides else ''}, base: {folder}"
    change = changed(path, status, hides=hides)
    return Variant(
        name, change, base(folder), command=("github", "approvals"), must=must,
        may_pass=must != "fail",
    )  # fmt: skip


def _fixed() -> Iterator[Variant]:
    for path in UNUSED:
        yield _variant("shared", path, "modified", hides=False, must="ended with 0")
    for name in USED:
        yield _variant("shared", f"shared/{name}", "modified", hides=True)
        yield _variant("a b", f"a b/{name}", "renamed", hides=False)
    for path in ALWAYS:
        yield _variant("shared", path, "modified", hides=False)


def _made(random: Random) -> Variant:
    folder = random.choice(FOLDERS)
    path = random.choice([*ALWAYS, *(f"{folder}/{name}" for name in USED)])
    return _variant(folder, path, random.choice(STATUSES), hides=random.random() < 0.5)


ATTACKS = (
    Attack(
        "approvals",
        "whatever the base uses waits for its approvals, wherever it lies",
        _fixed,
        _made,
    ),
)
