"""Several experiments in one command: what would refuse one is found before any is measured."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.store.liveness import experiment_lock
from tests.features.monitor.receiver import receiving
from tests.loopback.script import rule
from tests.loopback.server import LoopbackServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Edison, Folder

pytestmark = pytest.mark.daily

EXPERIMENT = """experiment: {name}
objective: Greet people by their name in a friendly way.
prompts: [prompts/hello.md]
models: [{model}]
dataset: datasets/{name}.jsonl
checks: [contains: "{{{{ expected }}}}"]
"""


@pytest.fixture
def loopback(tmp_path: Any) -> Iterator[LoopbackServer]:
    with LoopbackServer(ledger=tmp_path / "ledger.jsonl") as server:
        yield server


@pytest.fixture
def pair(mini: Folder, loopback: LoopbackServer) -> Folder:
    """The experiments `first` and `second`, each with its own model and two cases."""
    (mini.path / "experiments/hello.yaml").unlink()
    for name in ("first", "second"):
        mini.write(f"experiments/{name}.yaml", EXPERIMENT.format(name=name, model=name))
        rows = ({"id": n, "input": {"name": f"{name} {n}"}, "expected": "h"} for n in "ab")
        mini.write(f"datasets/{name}.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    models(mini, loopback)
    return mini


def models(folder: Folder, server: LoopbackServer, more: str = "price: {in: 1, out: 1}") -> None:
    """Write models.yaml, with `more` in the entry of the second model."""
    common = f"provider: openai_compatible, base_url: '{server.openai_url}'"
    folder.write(
        "models.yaml",
        f"first: {{{common}, model: first-1, price: {{in: 1, out: 1}}}}\n"
        f"second: {{{common}, model: second-1, {more}}}\n",
    )


@pytest.mark.parametrize(
    ("entry", "experiment", "reason"),
    [
        ("params: {}", "", "the price of second is unknown"),
        ("price: free, key_env: SOME_KEY", "", "SOME_KEY is not set (second needs it)"),
        ("price: free", "code", "a check runs code of the repository"),
    ],
)
def test_nothing_is_bought_while_another_experiment_would_be_refused(
    edison: Edison, pair: Folder, loopback: LoopbackServer, entry: str, experiment: str, reason: str
) -> None:
    models(pair, loopback, entry)
    if "SOME_KEY" in entry:
        allowed = f'keys: [{{env: SOME_KEY, hosts: ["{loopback.url}"]}}]\n'
        pair.write(".edison/trust.yaml", f"version: 1\n{allowed}")
    if experiment == "code":
        pair.write("checks/own.py", "def check(case, answer):\n    return True\n")
        old = 'checks: [contains: "{{ expected }}"]'
        new = "checks: [python: {value: 'checks/own.py:check'}]"
        pair.edit("experiments/second.yaml", old, new)
    done = edison(pair, "run")
    assert done.code == 2, done.all
    assert reason in done.err
    assert done.err.endswith("1 error; nothing was done\n")
    assert (done.out, loopback.requests) == ("", [])
    told = json.loads(edison(pair, "run", "--json").out)
    assert (told["exit_code"], reason in told["problems"][0]["message"]) == (2, True)
    assert edison(pair, "run", "first").code == 0, "it needs nothing of the other"
    assert len(loopback.requests) == 2


def test_what_refuses_several_experiments_is_told_together(
    edison: Edison, pair: Folder, loopback: LoopbackServer
) -> None:
    models(pair, loopback, "params: {}")
    pair.edit("models.yaml", "first-1, price: {in: 1, out: 1}", "first-1")
    done = edison(pair, "run")
    assert "the price of first is unknown" in done.err
    assert "the price of second is unknown" in done.err
    assert done.err.endswith("2 errors; nothing was done\n")
    assert loopback.requests == []


def test_a_run_that_is_going_on_elsewhere_keeps_the_others_from_starting(
    edison: Edison, pair: Folder, loopback: LoopbackServer
) -> None:
    with experiment_lock(pair.path / ".edison/locks", "second", "another"):
        done = edison(pair, "run")
    assert done.code != 0
    assert "second is already running" in done.err
    assert loopback.requests == []


@pytest.mark.parametrize("where", ["month", "budget"])
def test_a_budget_without_room_for_all_is_told_before_the_first_call(
    edison: Edison, pair: Folder, loopback: LoopbackServer, where: str
) -> None:
    pair.write("prompts/other.md", pair.read("prompts/hello.md").replace("id: hello", "id: other"))
    pair.edit("experiments/second.yaml", "prompts/hello.md", "prompts/other.md")
    models(pair, loopback, "price: {in: 1000, out: 1000}")
    options = ["--budget", "0.01"] if where == "budget" else []
    if where == "month":
        pair.write("edison.yaml", "version: 1\nproject: mini\n"
                   "settings: {monthly_budget_usd: 0.01}\n")  # fmt: skip
    done = edison(pair, "run", *options)
    assert done.code == 4, done.all
    name = "--budget is $0.01" if where == "budget" else "settings.monthly_budget_usd has $0.01"
    assert name in done.err
    assert loopback.requests == []


@pytest.fixture
def broken(pair: Folder, loopback: LoopbackServer) -> Folder:
    """The pair, of which the second loses its data while the first is measured."""

    def answer(said: str) -> str:
        pair.write("datasets/second.jsonl", "{no JSON\n")
        return f"hello {said}"

    loopback.script = [rule(text=answer)]
    return pair


def test_what_has_ended_is_shown_if_the_next_experiment_fails(
    edison: Edison, broken: Folder, loopback: LoopbackServer
) -> None:
    done = edison(broken, "run", "--junit", "junit.xml", "--markdown", "report.md")
    assert done.code == 2, done.all
    assert len(loopback.requests) == 2
    assert done.out.splitlines()[0].startswith("first  COMPLETED")
    assert "datasets/second.jsonl:1" in done.err
    assert "nothing was done" not in done.err
    assert "1 error" in done.err.splitlines()
    report = broken.read("report.md")
    assert "first" in report and "datasets/second.jsonl" in report
    assert "second.jsonl" in broken.read("junit.xml")


def test_the_document_has_both_what_ended_and_what_failed(edison: Edison, broken: Folder) -> None:
    done = edison(broken, "run", "--json")
    told = json.loads(done.out)
    assert (done.code, told["exit_code"], told["verdict"]) == (2, 2, "error")
    assert [run["experiment"] for run in told["runs"]] == ["first"]
    assert told["problems"][0]["file"] == "datasets/second.jsonl"
    assert told["error"]["message"]


def test_a_run_that_failed_is_notified_before_the_next_one_begins(
    edison: Edison, pair: Folder, loopback: LoopbackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dead provider is known at once, however long the runs that follow take."""
    recipient = "notifications:\n  - {name: ops, on: [run_failed], webhook_env: OPS_URL}\n"
    pair.write("edison.yaml", pair.read("edison.yaml") + recipient)
    with receiving() as server:
        monkeypatch.setenv("OPS_URL", server.url)
        told = []

        def answer(said: str) -> str:
            told.append([message["occasion"] for message in server.messages])
            return f"hello {said}"

        loopback.script = [rule(model="first-1", status=401), rule(text=answer)]
        done = edison(pair, "run")
        assert done.code == 3, done.all
        assert told == [["run_failed"]] * 2
        assert len(server.messages) == 1, "and it is notified once"


# --- what validate says of it ---------------------------------------------------------------------


def test_validate_notes_what_would_refuse_a_run(
    edison: Edison, pair: Folder, loopback: LoopbackServer
) -> None:
    models(pair, loopback, "price: free, key_env: SOME_KEY")
    allowed = f'keys: [{{env: SOME_KEY, hosts: ["{loopback.url}"]}}]\n'
    pair.write(".edison/trust.yaml", f"version: 1\n{allowed}")
    done = edison(pair, "validate")
    note = "models.yaml:2:1: note: a run would be refused: SOME_KEY is not set (second needs it)"
    assert (done.code, done.out.splitlines()) == (0, [note])
    assert done.err.startswith("ok: ") and done.err.endswith(", 1 note\n")
    told = json.loads(edison(pair, "validate", "--json").out)
    assert (told["ok"], told["problems"]) == (True, [])
    assert [(n["severity"], n["code"]) for n in told["notes"]] == [("note", "not-ready")]
    strict = edison(pair, "validate", "--strict", "--json")
    assert (strict.code, json.loads(strict.out)["ok"]) == (2, False)
    pair.edit("experiments/second.yaml", "objective:", "archived: true\nobjective:")
    assert edison(pair, "validate").out == "", "it does not run by itself"
