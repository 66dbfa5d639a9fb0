"""A project in which every kind of file is used, and changes to it of every kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from edison_ci import load_project, plan_run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Folder

FILES = {
    "edison.yaml": (
        "version: 1\nproject: kitchen\ndescription: Trying things out.\n"
        "defaults: {judge: judge, refiner: refiner, budget_usd: 5}\n"
        "settings: {allow_code: true, retention_days: 30}\n"
    ),
    "models.yaml": (
        "small: {provider: sim, model: small, params: {temperature: 0.5}}\n"
        "large: {use: small, model: large, limits: {concurrency: 3}}\n"
        "told: {provider: sim, model: script, options: {file: scripts/told.json}}\n"
        "paid: {provider: openai, model: gpt-4o-mini}\n"
        "judge: {provider: sim, model: judge}\n"
        "refiner: {provider: sim, model: refiner}\n"
        "spare: {provider: sim, model: echo}\n"
    ),
    "prompts/hello.md": (
        "---\nid: hello\ndescription: Says hello.\ninputs: {name: string}\n---\n"
        "# user\nSay hello to {{ name }} in one friendly sentence, and nothing else.\n"
    ),
    "prompts/bye.md": (
        "---\nid: bye\noutput: shapes/reply.json\n---\n"
        "# user\nSay goodbye to {{ name }} as JSON in one friendly sentence, and no more.\n"
    ),
    "prompts/kind.md": (
        "---\nid: kind\ntype: grader\n---\nIs {{ output }} kind to {{ expected }}? yes or no.\n"
    ),
    "shapes/reply.json": '{"type": "object"}\n',
    "shapes/check.json": '{"type": "object", "required": ["text"]}\n',
    "checks/tone.py": "def check(output, expected, case):\n    return True\n",
    "checks/grade.sh": "#!/bin/sh\necho 1\n",
    "scripts/told.json": '{"": "hello"}\n',
    "rubrics/tone.yaml": (
        "rubric: tone\ncriteria:\n"
        "  - {name: Warmth, description: Sounds friendly and warm., weight: 0.5}\n"
        "  - {name: Brevity, description: One short sentence only., weight: 0.5}\n"
        "calibration: {labels: labels/tone.jsonl}\n"
    ),
    "labels/tone.jsonl": (
        '{"case": "ada", "by": "ann", "scale": "thumbs", "grade": 1, "output": "Hi"}\n'
    ),
    "judge_approvals.yaml": (
        "approvals:\n  - rubric: tone\n    judges: [judge]\n"
        + "".join(
            f"    {name}_hash: {'0' * 64}\n"
            for name in ("models", "rubric", "instructions", "labels")
        )
        + "    n: 60\n    floor: 0.6\n    min_n: 50\n    date: 2026-11-15\n"
    ),
    "datasets/names.jsonl": (
        '{"id": "ada", "input": {"name": "Ada"}, "expected": "Ada", "metadata": {"by": "me"}}\n'
        '{"id": "bo", "input": {"name": "Bo"}, "expected": "Bo", "tags": ["short"]}\n'
    ),
    "datasets/more.csv": "id,name,expected\ncy,Cy,Cy\ndi,Di,Di\n",
    "experiments/hello.yaml": (
        "experiment: hello\ntitle: Hello\n"
        "objective: Greet people by their name in a friendly way.\n"
        "prompts: [prompts/hello.md]\n"
        "models: [large, told]\n"
        "dataset: datasets/names.jsonl\n"
        'checks:\n  - contains: "{{ expected }}"\n  - python: checks/tone.py:check\n'
        "rubric: rubrics/tone.yaml\n"
        "gates:\n  - {metric: composite, no_worse_than: base, margin: 10pp}\n"
    ),
    "experiments/bye.yaml": (
        "experiment: bye\n"
        "objective: Say goodbye to people by their name, kindly.\n"
        "prompts: [prompts/bye.md]\n"
        "models: [paid]\n"
        "datasets: [datasets/names.jsonl, {path: datasets/more.csv, kind: adversarial}]\n"
        "checks:\n  - json_schema: shapes/check.json\n  - command: [sh, checks/grade.sh]\n"
        "judges: {graders: [prompts/kind.md]}\n"
        "split: {holdout: 0.4, seed: 0}\n"
    ),
    "quarantine.yaml": (
        "version: 1\ncases:\n"
        "  - {experiment: hello, case: bo, reason: flaky, since: 2026-01-01, until: 2999-01-01,"
        " owner: me}\n"
    ),
    ".edison/trust.yaml": "version: 1\nkeys: []\n",
}
"""Two experiments: hello (rubric, code, script) and bye (grader, schemas, command, CSV, price)."""


@dataclass(frozen=True)
class Change:
    """An edit of one file, and the experiments whose result depends on it."""

    name: str
    old: str
    new: str
    affects: str = ""

    @property
    def experiments(self) -> set[str]:
        return set(self.affects.split())

    def apply(self, folder: Folder) -> None:
        if self.old:
            folder.edit(self.name, self.old, self.new)
        else:
            folder.write(self.name, self.new)


PRICES = '{"date": "2026-01-01", "source": "me", "models": {"openai/%s": {"in": 1, "out": 2}}}\n'

CHANGES = {
    # What a run of one of them, or of both, depends on.
    "prompt text": Change("prompts/hello.md", "friendly", "warm", "hello"),
    "prompt parameters": Change(
        "prompts/hello.md", "id: hello", "id: hello\nparams: {top_p: 0.5}", "hello"
    ),
    "what a prompt expects": Change(
        "prompts/hello.md", "id: hello", "id: hello\nexpect: response", "hello"
    ),
    "schema of an output": Change("shapes/reply.json", "object", "array", "bye"),
    "grader": Change("prompts/kind.md", "kind to", "nice to", "bye"),
    "scale of a grader": Change(
        "prompts/kind.md", "type: grader", "type: grader\nscale: 0-5", "bye"
    ),
    "expected output": Change(
        "datasets/names.jsonl", '"expected": "Ada"', '"expected": "A"', "hello bye"
    ),
    "tags of a case": Change("datasets/names.jsonl", '"short"', '"brief"', "hello bye"),
    "a further case": Change("datasets/more.csv", "di,Di,Di\n", "di,Di,Di\ned,Ed,Ed\n", "bye"),
    "kind of data": Change("experiments/bye.yaml", "adversarial", "synthetic", "bye"),
    "condition on data": Change(
        "experiments/bye.yaml", "kind: adversarial", "kind: adversarial, where: {id: cy}", "bye"
    ),
    "rubric": Change("rubrics/tone.yaml", "friendly and", "kind and", "hello"),
    "weights of a rubric": Change(
        "rubrics/tone.yaml", "weight: 0.5}\ncal", "weight: 0.5, required: true}\ncal", "hello"
    ),
    "labels of a rubric": Change("labels/tone.jsonl", "1", "0", "hello"),
    "approval of a judge": Change("judge_approvals.yaml", "n: 60", "n: 61", "hello"),
    "schema of a check": Change("shapes/check.json", '"text"', '"reply"', "bye"),
    "code of a check": Change("checks/tone.py", "True", "False", "hello"),
    "program of a check": Change("checks/grade.sh", "echo 1", "echo 0", "bye"),
    "check": Change("experiments/hello.yaml", "contains:", "icontains:", "hello"),
    "gate": Change("experiments/hello.yaml", "margin: 10pp", "margin: 5pp", "hello"),
    "objective": Change("experiments/hello.yaml", "friendly way", "kind way", "hello"),
    "repeats": Change("experiments/bye.yaml", "models:", "repeats: 2\nmodels:", "bye"),
    "split": Change("experiments/bye.yaml", "seed: 0", "seed: 1", "bye"),
    "safety": Change("experiments/bye.yaml", "models:", "safety: {pii: block}\nmodels:", "bye"),
    "stop rule": Change("experiments/bye.yaml", "models:", "stop: {window: 2}\nmodels:", "bye"),
    "model of an experiment": Change("experiments/hello.yaml", "[large", "[small", "hello"),
    "grid": Change(
        "experiments/bye.yaml", "[paid]", "[{use: paid, params: {temperature: [0, 1]}}]", "bye"
    ),
    "model": Change("models.yaml", "model: large", "model: small", "hello"),
    "model by inheritance": Change("models.yaml", "temperature: 0.5", "temperature: 0.6", "hello"),
    "file of a model": Change("scripts/told.json", "hello", "hi", "hello"),
    "judge": Change(
        "models.yaml", "model: judge}", "model: judge, options: {noise: 0.2}}", "hello bye"
    ),
    "price as written": Change(
        "models.yaml", "model: gpt-4o-mini", "model: gpt-4o-mini, price: {in: 9, out: 9}", "bye"
    ),
    "price in the table": Change(".edison/prices.json", "", PRICES % "gpt-4o-mini", "bye"),
    "default judge": Change("edison.yaml", "judge: judge", "judge: spare", "hello bye"),
    "default refiner": Change("edison.yaml", "refiner: refiner", "refiner: spare", "hello bye"),
    "default budget": Change("edison.yaml", "budget_usd: 5", "budget_usd: 6", "hello bye"),
    "whether code may run": Change("edison.yaml", "allow_code: true, ", "", "hello bye"),
    "what is stored": Change(
        "edison.yaml",
        "allow_code: true",
        "allow_code: true, redact_pii_before_storage: true",
        "hello bye",
    ),
    "quarantined case": Change("quarantine.yaml", "case: bo", "case: ada", "hello"),
    # What nothing depends on.
    "description of the project": Change("edison.yaml", "Trying things out", "Trying more"),
    "name of the project": Change("edison.yaml", "project: kitchen", "project: cellar"),
    "retention": Change("edison.yaml", "retention_days: 30", "retention_days: 60"),
    "members": Change(
        "edison.yaml", "version: 1", "version: 1\nmembers: [{github: a, role: owner}]"
    ),
    "title": Change("experiments/hello.yaml", "title: Hello", "title: Good day"),
    "comment": Change("experiments/hello.yaml", "title: Hello", "# a comment\ntitle: Hello"),
    "order of keys": Change(
        "experiments/bye.yaml",
        "experiment: bye\nobjective: Say goodbye to people by their name, kindly.\n",
        "objective: Say goodbye to people by their name, kindly.\nexperiment: bye\n",
    ),
    "description of an experiment": Change(
        "experiments/hello.yaml", "title: Hello", "title: Hello\ndescription: New.\ntags: [new]"
    ),
    "schedule": Change(
        "experiments/hello.yaml", "title:", 'schedule: [{name: a, cron: "0 9 * * 1"}]\ntitle:'
    ),
    "alerts": Change("experiments/hello.yaml", "title:", "alerts: {drop: 20%}\ntitle:"),
    "description of a prompt": Change("prompts/hello.md", "Says hello", "Greets"),
    "version in production": Change("prompts/hello.md", "id: hello", "id: hello\nproduction: v1"),
    "default written out": Change(
        "experiments/bye.yaml", "models:", "repeats: 1\nmax_errors: 0.2\nmodels:"
    ),
    "default of a grader written out": Change(
        "experiments/bye.yaml",
        "[prompts/kind.md]",
        "[{prompt: prompts/kind.md, by: judge, weight: 1, threshold: 0.5}]",
    ),
    "default judge written out": Change(
        "experiments/hello.yaml", "rubric:", "judges: {pointwise: [judge]}\nrubric:"
    ),
    "default budget written out": Change(
        "experiments/hello.yaml", "title:", "stop: {budget_usd: 5}\ntitle:"
    ),
    "default parameter written out": Change(
        "models.yaml", "model: gpt-4o-mini", "model: gpt-4o-mini, params: {temperature: 1.0}"
    ),
    "model that is not used": Change("models.yaml", "model: echo", "model: small"),
    "new model": Change("models.yaml", "spare:", "extra: {provider: sim, model: small}\nspare:"),
    "order of models": Change(
        "models.yaml",
        "judge: {provider: sim, model: judge}\nrefiner: {provider: sim, model: refiner}\n",
        "refiner: {provider: sim, model: refiner}\njudge: {provider: sim, model: judge}\n",
    ),
    "limits of a model": Change("models.yaml", "concurrency: 3", "concurrency: 4"),
    "key of a model": Change(
        "models.yaml", "model: gpt-4o-mini", "model: gpt-4o-mini, key_env: OPENAI_API_KEY"
    ),
    "price of another model": Change(
        ".edison/prices.json",
        "",
        '{"date": "2026-01-01", "source": "me", "models": {"openai/gpt-4o-mini": '
        '{"in": 0.15, "out": 0.6, "cached_in": 0.075, "batch": {"in": 0.075, '
        '"out": 0.3}}, "openai/x": {"in": 1, "out": 1}}}\n',
    ),
    "trust": Change(
        ".edison/trust.yaml", "keys: []", 'keys: [{env: K, hosts: ["https://a.example:443"]}]'
    ),
    "reason of a quarantine": Change("quarantine.yaml", "reason: flaky", "reason: wobbly"),
    "new prompt": Change("prompts/new.md", "", "A prompt that no experiment uses, long enough.\n"),
    "new file": Change("notes.txt", "", "Nothing to do with us.\n"),
}
"""What may happen to a project."""

ROWS_ONLY = {
    "metadata of a case": Change("datasets/names.jsonl", '"by": "me"', '"by": "you"'),
    "order of cases": Change("datasets/more.csv", "cy,Cy,Cy\ndi,Di,Di\n", "di,Di,Di\ncy,Cy,Cy\n"),
    "spelling of a row": Change("datasets/names.jsonl", '{"id": "ada", ', '{ "id":"ada", '),
}
"""Changes of data that no result depends on; by its bytes alone one cannot tell."""


def lay_out(folder: Folder, files: dict[str, str] = FILES) -> Folder:
    for name, text in files.items():
        folder.write(name, text)
    return folder


def hashes(root: Path) -> dict[str, str]:
    """Return the plan hash of every experiment of a project."""
    project = load_project(root)
    return {name: plan_run(project, e).hash for name, e in project.experiments.items()}
