"""edison refine shows a diff with proof, labelled simulated, and sends nothing that is held out."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests import forked, holding
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
from tests.planted import Planted, plant
from tests.timing import poll

if TYPE_CHECKING:
    from tests.conftest import Edison, Folder

pytestmark = pytest.mark.daily

KEYS = {
    "id", "experiment", "prompt", "status", "diff", "note", "targets", "guardrails", "evidence",
    "branch", "pull_request", "decided_by", "decided_at", "reason",
}  # fmt: skip


def ask(folder: Folder, sql: str) -> list[tuple[Any, ...]]:
    with opened(folder.path / ".edison/results.db") as connection:
        return connection.execute(sql).fetchall()


@pytest.mark.nightly
def test_the_template_gets_better_on_cases_that_nobody_has_seen(
    edison: Edison, support: Folder
) -> None:
    support.write(".gitignore", ".edison/\n")
    support.git("init", "-q")
    support.git("add", "-A")
    support.git("commit", "-qm", "start")
    found = edison(support, "refine", "support-reply", "--json")
    assert found.code == 0, found.err
    told = json.loads(found.out)
    assert told["schema_version"] == 1
    assert told["simulated"] is True
    (one,) = told["suggestions"]
    assert set(one) >= KEYS
    assert one["status"] == "proposed"
    assert one["simulated"] is True
    assert {"rule", "ok", "detail"} == set(one["guardrails"][0])
    assert one["evidence"]["holdout"]["n"] >= 16
    assert one["evidence"]["holdout"]["decision"] == "better"
    assert one["evidence"]["holdout"]["difference"]["low"] > 0
    assert support.git("status", "--porcelain") == "", "no file of the working tree changed"
    again = edison(support, "refine", "support-reply")
    assert again.code == 0
    for word in (one["id"], "PROPOSED", "simulated", "unseen", "Empathy", "guardrails: all"):
        assert word in again.out
    shown = re.findall(r"(?m)^ {6}\S.*? {2,}(\S+) +(\S+) +\S+$", again.out)
    assert len(shown) == 8 and all(re.fullmatch(r"[0-9]+\.[0-9]", s) for row in shown for s in row)
    ((calls,),) = ask(support, "select count(*) from attempt where phase = 'refine'")
    assert calls == 1, "the same question is not asked twice"
    rows = ask(support, "select action, entity from audit")
    assert rows == [("refine", "support-reply/support-reply")] * 2


@pytest.mark.nightly
def test_nothing_of_a_case_that_is_held_out_reaches_the_refiner(folder: Folder) -> None:
    """Each case carries a word of its own; the refiner answers over HTTP and sees none of them."""
    project(folder)
    mark_cases(folder)
    bad = json.dumps({"note": "n", "diff": "nonsense\n"})
    script = [rule(number=1, text=bad), rule(text=reply(WELCOME))]
    with LoopbackServer(script) as server:
        refined_over_http(folder, server)
        for _ in range(2):  # the second time it is told of the first suggestion
            done = folder.edison("refine", "hello", "--candidates", "2")
            assert done.code == 0, done.err
            assert "  prompts/hello.md  simulated answers\n" in done.out
            with opened(folder.path / ".edison/results.db") as connection:
                connection.execute("update suggestion set status = 'tried'")
        bodies = [request.body.decode() for request in server.requests]
    shown = cases_shown(folder, bodies)
    assert len(bodies) > 3
    assert shown, "training cases are shown, or this test would see nothing"


def test_it_says_what_it_cannot_do(support: Folder) -> None:
    unknown = support.edison("refine", "nothing")
    assert unknown.code == 2
    assert "there is no experiment" in unknown.err
    support.edit("experiments/support-reply.yaml", "refine: {by: refiner, examples: 10}", "")
    support.edit("edison.yaml", "refiner: refiner", "")
    nobody = support.edison("refine", "support-reply")
    assert nobody.code == 2
    assert "support-reply has no refiner model" in nobody.err
    assert "refine: {by: NAME}" in nobody.err


def test_somebody_without_the_role_is_refused(support: Folder) -> None:
    text = support.read("edison.yaml")
    support.write(
        "edison.yaml",
        f"{text}\nmembers:\n  - {{email: test@example.com, role: reviewer}}\n"
        "  - {email: boss@example.com, role: owner}\n",
    )
    support.git("init", "-q")
    support.git("config", "user.email", "test@example.com")
    refused = support.edison("refine", "support-reply")
    assert refused.code == 2
    assert "refine" in refused.err


def test_a_budget_ends_it_with_exit_code_4(folder: Folder) -> None:
    project(folder)
    done = folder.edison("refine", "hello", "--budget", "0.001", "--json")
    assert done.code == 4, done.err
    told = json.loads(done.out)
    assert told["exit_code"] == 4
    assert "repeat with: edison refine hello --budget " in told["error"]["hint"]


@pytest.mark.nightly
def test_ctrl_c_stops_it_and_the_same_command_goes_on(folder: Folder) -> None:
    project(folder)
    folder.write(
        "models.yaml",
        "small: {provider: sim, model: small, limits: {concurrency: 2}}\n"
        "refiner: {provider: sim, model: refiner}\n",
    )
    with holding.start(
        folder, "refine", "hello", calls=5, after="measuring the candidate"
    ) as process:
        holding.heard(process, "measuring the candidate")
        held = "select count(*) from attempt where state = 'reserved'"
        poll("calls of the trial are in flight", lambda: ask(folder, held) == [(2,)])
        process.send_signal(signal.SIGINT)
        holding.let_go(folder)
        _, said = process.communicate()
    assert process.returncode == 130, said
    assert "repeat the command" in said
    assert ask(folder, "select count(*) from suggestion") == [(0,)]
    rows = ask(folder, "select status from run where trigger = 'refine' order by rowid")
    assert rows == [("COMPLETED",), ("CANCELLED",)]
    done = folder.edison("refine", "hello")
    assert done.code == 0, done.err
    ((twice,),) = ask(folder, "select count(*) - count(distinct request_hash) from answer")
    assert twice == 0, "nothing is asked twice"
    assert ask(folder, "select count(*) from suggestion") == [(1,)]


def test_ctrl_c_while_the_refiner_is_asked_says_that_it_goes_on(folder: Folder) -> None:
    project(folder)
    folder.write(
        "models.yaml",
        "small: {provider: sim, model: small}\n"
        "refiner: {provider: sim, model: refiner, options: {latency_ms: 60000}}\n",
    )
    command = [sys.executable, "-P", "-m", "edison_ci", "refine", "hello"]
    with forked.Popen(
        command, cwd=folder.path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stderr is not None
        next(line for line in process.stderr if "asking refiner" in line)
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
    assert process.returncode == 130, said
    assert "repeat the command" in said


def test_a_trial_that_was_cut_off_is_told_from_a_run_that_waits(
    edison: Edison, mini: Folder
) -> None:
    when = "2026-11-01T00:00:0{}.000Z"
    cut = Planted("r1", when.format(1), {"small": [0.5]}, complete=False)
    waiting = Planted("r2", when.format(2), {"small": [0.5]}, complete=False)
    path = plant(mini, cut, waiting)
    assert "trial" not in edison(mini, "status").all
    with opened(path) as connection:
        connection.execute("update run set trigger = 'refine' where id = 'r1'")
    assert "r1" not in edison(mini, "status").out
    done = edison(mini, "status", "--trials")
    lines = {line.split()[0]: line for line in done.out.splitlines()}
    assert "hello (trial)" in lines["r1"] and "(trial)" not in lines["r2"]
    assert done.err.count("a trial of hello was interrupted") == 1
    assert "to test again with its answers: edison refine hello" in done.err


def test_hostile_notes_and_diffs_do_nothing_to_a_terminal(folder: Folder) -> None:
    project(folder)
    evil = json.dumps({"note": "\x1b[2J\x07::error::boo\u202e", "diff": "\x1b]0;x\x07" * 9_000})
    with LoopbackServer([rule(text=evil)]) as server:
        folder.write(
            "models.yaml",
            "small: {provider: sim, model: small}\n"
            f"refiner: {{provider: openai_compatible, model: r, base_url: '{server.openai_url}', "
            "price: free}\n",
        )
        done = folder.edison("refine", "hello")
    assert done.code == 0, done.err
    assert "REFUSED" in done.out
    assert not {"\x1b", "\x07", "\u202e"} & {*done.all}
    assert "Traceback" not in done.all
    assert max(map(len, done.out.splitlines())) < 5_000, "a long line is cut"
