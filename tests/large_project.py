"""Makes projects with many of everything: experiments, models, members, runs, versions, loops.

Files and tables are written directly, so that a project of a thousand experiments takes seconds.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from typing import TYPE_CHECKING

from edison_ci import utc
from edison_ci.features.monitor.alert_rows import (
    Condition,
    Finding,
    Level,
    open_alert,
    update_alert,
)
from edison_ci.features.refine.loop_rows import (
    Iteration,
    Loop,
    LoopState,
    write_iteration,
    write_loop,
)
from edison_ci.records import CellStatus, SuggestionStatus
from edison_ci.store.cells import CaseFacts, Component
from edison_ci.store.database import open_for_change
from edison_ci.store.suggestions import Suggestion, add_suggestion
from tests.planted import Planted, plant

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

    from tests.conftest import Folder

BEGAN = dt.datetime(2026, 9, 1, tzinfo=dt.UTC)
LOOP = "20260901T000000-loop00"
"""The loop with many iterations."""


def build(folder: Folder, *, experiments: int, others: int) -> Path:
    """Add many of everything to the small project; return its results file.

    Besides `experiments` experiments there are `others` members, models, runs of one experiment,
    experiments with a run, versions of a prompt, iterations, loops, suggestions and alerts.
    """
    _write_files(folder, experiments, others)
    models = [f"model-{number:03}" for number in range(others)]
    runs = [
        Planted(_run_id(n), _time(n), {"small": [0.5, 1.0]}, version=version(n), label=f"v{n}")
        for n in range(others)
    ]
    runs += [
        Planted(f"other-{n:04}", _time(n), {"small": [1.0, 0.5]}, experiment=f"e{n:04}",
                prompt=f"p{n:04}", content=f"of {n}", snapshot=_snapshot(f"e{n:04}"))
        for n in range(min(others, experiments - 1))
    ]  # fmt: skip
    wide = {model: [1.0, 0.25] for model in models}
    facts = CaseFacts(json.dumps(["returns", "angry"]), 1, "golden", 8)
    checks = [Component(name, "check", 0.5, True, 0.5, CellStatus.OK) for name in ("kind", "short")]
    runs.append(
        Planted("wide", _time(others), wide, version=version(others), label="wide",
                snapshot=_snapshot("hello"), facts=facts, components=tuple(checks))
    )  # fmt: skip
    path = plant(folder, *runs)
    with open_for_change(path) as connection:
        _write_rows(connection, others)
    return path


def version(number: int) -> str:
    """Return the hash of a version of the prompt."""
    return hashlib.sha256(str(number).encode()).hexdigest()


def _run_id(number: int) -> str:
    return f"run-{number:04}"


def _time(number: int) -> str:
    return utc.timestamp(BEGAN + dt.timedelta(hours=number))


def _snapshot(experiment: str) -> str:
    return json.dumps({"experiment": {"experiment": experiment, "objective": "Greet people."}})


def _write_files(folder: Folder, experiments: int, others: int) -> None:
    text, prompt = folder.read("experiments/hello.yaml"), folder.read("prompts/hello.md")
    for number in range(experiments - 1):
        name, own = f"e{number:04}", f"p{number % others:04}"
        if number < others:
            folder.write(f"prompts/{own}.md", prompt.replace("id: hello", f"id: {own}"))
            schedule = 'schedule:\n  - {name: nightly, cron: "0 3 * * *"}\n'
        changed = text.replace("experiment: hello", f"experiment: {name}")
        changed = changed.replace("prompts/hello.md", f"prompts/{own}.md")
        folder.write(f"experiments/{name}.yaml", changed + (schedule if number < others else ""))
    entries = [f"model-{number:03}: {{provider: sim, model: small}}\n" for number in range(others)]
    folder.write("models.yaml", folder.read("models.yaml") + "".join(entries))
    members = [f"  - {{github: member-{n:03}, role: editor}}\n" for n in range(others - 1)]
    members.append("  - {email: ada@example.com, role: owner}\n")
    folder.write("edison.yaml", folder.read("edison.yaml") + "members:\n" + "".join(members))


def _write_rows(connection: sqlite3.Connection, others: int) -> None:
    for number in range(others):
        state = LoopState.DONE if number else LoopState.REVIEWING
        loop_id = LOOP[:-2] + f"{number:02}" if number < 100 else f"{LOOP}{number}"
        loop = Loop(loop_id, "hello", "hello", "review", state, others, 10**8, _time(number))
        write_loop(connection, loop)
        for place in range(others if loop_id == LOOP else 1):
            of = (place + 1, "hello", "prompts/hello.md", version(place), "text", _run_id(place))
            write_iteration(connection, loop, Iteration(*of, place / others, 2))
        diff = f"--- a/prompts/hello.md\n+++ b/prompts/hello.md\n@@ -1 +1 @@\n-a\n+b{number}\n"
        of_prompt = ("hello", "hello", "prompts/hello.md", version(number), diff, "shorter")
        add_suggestion(connection, Suggestion(*of_prompt, SuggestionStatus.PROPOSED, _time(number)))
        for experiment, closed in ((f"e{number:04}", None), (f"f{number:04}", _time(number))):
            finding = Finding(Condition.DROP, Level.ALERT, "It fell.", experiment)
            alert = open_alert(connection, finding, _time(number))
            if closed:
                update_alert(connection, alert, closed_at=closed, closed_why="it rose again")
