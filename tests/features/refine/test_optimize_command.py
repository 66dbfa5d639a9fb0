"""edison optimize searches wider, sends nothing that is held out, and survives what stops it."""

from __future__ import annotations

import json
import shutil
import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests import forked
from tests.conftest import Folder
from tests.features.refine.workbench import (
    WELCOME,
    cases_shown,
    mark_cases,
    project,
    refined_over_http,
    reply,
)
from tests.loopback.script import rule
from tests.loopback.server import LoopbackServer
from tests.opened import opened

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from tests.conftest import Edison

pytestmark = pytest.mark.daily

SMALL = ("--population", "3", "--generations", "2")


def ask(folder: Folder, sql: str) -> list[tuple[Any, ...]]:
    with opened(folder.path / ".edison/results.db") as connection:
        return connection.execute(sql).fetchall()


def commit(folder: Folder) -> None:
    folder.write(".gitignore", ".edison/\n")
    folder.git("init", "-q")
    folder.git("config", "user.name", "Test")
    folder.git("config", "user.email", "test@example.com")
    folder.git("add", "-A")
    folder.git("commit", "-qm", "start")


@pytest.mark.nightly
def test_a_search_ends_in_a_suggestion_that_can_be_proposed(
    edison: Edison, support: Folder
) -> None:
    commit(support)
    found = edison(support, "optimize", "support-reply", *SMALL, "--json")
    assert found.code == 0, found.err
    told = json.loads(found.out)
    assert told["schema_version"] == 1
    assert told["simulated"] is True
    assert told["stopped_by"] == "generations"
    assert [one["number"] for one in told["generations"]] == [1, 2]
    assert sum(one["best"] for one in told["population"]) == 1
    (one,) = (one for one in told["suggestions"] if one["status"] != "refused")
    assert one["status"] == "proposed"
    assert one["made_by"] == "optimize"
    assert one["simulated"] is True
    assert one["evidence"]["holdout"]["decision"] == "better"
    assert one["evidence"]["search"]["id"] == told["search"]
    assert support.git("status", "--porcelain") == "", "no file of the working tree changed"
    again = edison(support, "optimize", "support-reply", *SMALL)
    assert again.code == 0
    said = again.err + again.out
    for word in ("generation 2 of 2: best", "front", one["id"], "PROPOSED", "simulated", "unseen"):
        assert word in said
    for word in ("found by a search: 2 generations", "4 times the limits", "edison propose"):
        assert word in said
    rows = ask(support, "select action, entity from audit")
    assert rows == [("optimize", "support-reply/support-reply")] * 2
    offered = edison(support, "propose", one["id"], "--json")
    assert offered.code == 0, offered.err
    branch = json.loads(offered.out)["branch"]
    text = support.git("show", f"{branch}:prompts/support-reply.md")
    for line in one["diff"].splitlines():
        if line.startswith("+- "):
            assert line[1:] in text


@pytest.mark.nightly
def test_nothing_of_a_case_that_is_held_out_reaches_the_refiner(
    edison: Edison, folder: Folder
) -> None:
    """Each case carries a word of its own; the refiner answers over HTTP and sees none of them."""
    project(folder)
    mark_cases(folder)
    bad = json.dumps({"note": "n", "diff": "nonsense\n"})
    script = [rule(number=1, text=bad), rule(text=reply(WELCOME))]
    with LoopbackServer(script) as server:
        refined_over_http(folder, server)
        for _ in range(2):  # the second time it is told of the first suggestion
            done = edison(folder, "optimize", "hello", *SMALL, "--force")
            assert done.code == 0, done.err
            with opened(folder.path / ".edison/results.db") as connection:
                change = "update suggestion set status = 'rejected', reason = 'no' where status <> "
                connection.execute(f"{change} 'refused'")
        bodies = [request.body.decode() for request in server.requests]
    shown = cases_shown(folder, bodies)
    assert len(bodies) > 6
    assert any("rejected by a person" in body for body in bodies)
    assert len(shown) > 10, "training cases are shown, or this test would see nothing"


STOPPING = """
import os, signal, sys
from edison_ci.cli.app import run
from edison_ci.features.simulator.provider import SimulatedProvider

left, how, whole = int(sys.argv[1]), getattr(signal, sys.argv[2]), SimulatedProvider.complete

async def complete(self, request):
    global left
    answer, left = await whole(self, request), left - 1
    if left == 0:
        os.kill(os.getpid(), how)
    return answer

SimulatedProvider.complete = complete
run(sys.argv[3:])
"""
"""A process that is sent a signal when a model has answered so many calls."""


def stopped(folder: Folder, calls: int, how: str) -> subprocess.CompletedProcess[str]:
    """Search in a process of its own, which is stopped after some calls."""
    command = [sys.executable, "-P", "-c", STOPPING, str(calls), how, "optimize", "hello"]
    return forked.run(
        [*command, *SMALL, "--force"], cwd=folder.path, capture_output=True, text=True, check=False
    )


@pytest.mark.nightly
def test_a_search_that_was_stopped_and_killed_ends_as_if_it_was_not(
    edison: Edison, folder: Folder, tmp_path: Path
) -> None:
    project(folder)
    priced = "limits: {concurrency: 2}, price: {in: 1, out: 1}"
    folder.write(
        "models.yaml",
        f"small: {{provider: sim, model: small, {priced}}}\n"
        f"refiner: {{provider: sim, model: refiner, {priced}}}\n",
    )
    other = Folder(shutil.copytree(folder.path, tmp_path / "other"))
    undisturbed = edison(other, "optimize", "hello", *SMALL, "--force", "--json")
    assert undisturbed.code == 0, undisturbed.err
    halted = stopped(folder, 50, "SIGINT")
    assert halted.returncode == 130, halted.stderr
    assert "repeat the command" in halted.stderr
    killed = stopped(folder, 40, "SIGKILL")
    assert killed.returncode == -signal.SIGKILL
    assert "generation 1 of 2: asking" in killed.stderr
    assert ask(folder, "select count(*) from suggestion") == [(0,)]
    done = edison(folder, "optimize", "hello", *SMALL, "--force", "--json")
    assert done.code == 0, done.err
    first, second = (json.loads(each.out) for each in (undisturbed, done))
    assert [one["id"] for one in second["suggestions"]] == [
        one["id"] for one in first["suggestions"]
    ]
    assert second["population"] == first["population"]
    ((twice,),) = ask(folder, "select count(*) - count(distinct request_hash) from answer")
    assert twice == 0, "nothing is paid for twice"
    ((lost,),) = ask(folder, "select count(*) from attempt where state = 'unknown'")
    assert lost <= 2, "at most one answer for each open connection"
    ((settled, unknown),) = ask(
        folder,
        "select sum(case state when 'settled' then cost_microusd else 0 end), "
        "sum(case state when 'unknown' then est_microusd else 0 end) from attempt",
    )
    assert second["cost_microusd"] == settled + unknown
    assert settled == first["cost_microusd"]


def test_it_says_what_it_cannot_do(edison: Edison, support: Folder) -> None:
    for wrong in (("--population", "1"), ("--generations", "0"), ("--target", "120")):
        refused = edison(support, "optimize", "support-reply", *wrong)
        assert refused.code == 2
        assert wrong[0] in refused.err
    unknown = edison(support, "optimize", "nothing")
    assert unknown.code == 2
    assert "there is no experiment" in unknown.err
    file = "experiments/support-reply.yaml"
    whole = support.read(file)
    support.edit(file, "split: {holdout: 0.4", "split: {holdout: 0")
    bare = edison(support, "optimize", "support-reply")
    assert bare.code == 2
    assert "support-reply has no held-out cases" in bare.err
    support.write(file, whole.replace("split: {holdout: 0.4", "split: {holdout: 0.9"))
    few = edison(support, "optimize", "support-reply")
    assert few.code == 2
    assert "a search needs 20 training cases" in few.err
    support.write(file, whole.replace("refine: {by: refiner, examples: 10}", ""))
    support.edit("edison.yaml", "refiner: refiner", "")
    nobody = edison(support, "optimize", "support-reply")
    assert nobody.code == 2
    assert "support-reply has no refiner model" in nobody.err


def test_a_price_that_nobody_knows_is_refused_with_a_budget(edison: Edison, folder: Folder) -> None:
    project(folder)
    folder.write(
        "models.yaml",
        "small: {provider: sim, model: small}\n"
        "refiner: {provider: openai_compatible, model: r, base_url: 'http://127.0.0.1:9/v1'}\n",
    )
    refused = edison(folder, "optimize", "hello", "--budget", "1")
    assert refused.code == 2
    assert "the price of refiner is unknown" in refused.err


def test_a_budget_that_is_too_small_ends_with_exit_code_4(edison: Edison, folder: Folder) -> None:
    project(folder)
    done = edison(folder, "optimize", "hello", "--budget", "0.0001", "--json")
    assert done.code == 4, done.err
    assert "repeat the command" in json.loads(done.out)["error"]["hint"]


def test_somebody_without_the_role_is_refused(edison: Edison, support: Folder) -> None:
    text = support.read("edison.yaml")
    support.write(
        "edison.yaml",
        f"{text}\nmembers:\n  - {{email: test@example.com, role: reviewer}}\n"
        "  - {email: boss@example.com, role: owner}\n",
    )
    support.git("init", "-q")
    support.git("config", "user.email", "test@example.com")
    refused = edison(support, "optimize", "support-reply")
    assert refused.code == 2
    assert "optimize" in refused.err
