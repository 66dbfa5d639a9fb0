"""What a command says after a budget has stopped it is enough when it is done to the letter."""

from __future__ import annotations

import json
import re
import shlex
import signal
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edison_ci.numeric import in_cents
from tests import holding
from tests.cli.test_calibrate import label_all
from tests.cli.test_calibrate import project as calibrated_project
from tests.features.refine.workbench import project as refined_project
from tests.opened import opened
from tests.timing import PATIENCE_S, poll

if TYPE_CHECKING:
    from tests.conftest import Edison, Folder, Result

pytestmark = pytest.mark.daily

__all__ = ["calibrated_project"]


def write_cases(folder: Folder, count: int, length: int = 1) -> None:
    rows = (
        {"id": f"c{i}", "input": {"name": f"P{i} " * (1 + i % length)}, "expected": f"P{i}"}
        for i in range(count)
    )
    folder.write("datasets/names.jsonl", "".join(json.dumps(row) + "\n" for row in rows))


def write_models(folder: Folder, price: float, more: str = "") -> None:
    rate = f"price: {{in: {price}, out: {4 * price}}}"
    folder.write(
        "models.yaml",
        f"small: {{provider: sim, model: small, {rate}{more}}}\n"
        f"judge: {{provider: sim, model: judge, {rate}}}\n",
    )


def obey(edison: Edison, folder: Folder, done: Result) -> Result:
    """Do what the last line says: raise a budget in a file, and run a command."""
    said = done.err.strip().splitlines()[-1]
    if found := re.search(r"[Rr]aise stop\.budget_usd to ([\d.]+)", said):
        text = re.sub(r"stop: .*\n", "", folder.read("experiments/hello.yaml"))
        folder.write("experiments/hello.yaml", f"{text}stop: {{budget_usd: {found[1]}}}\n")
    command = said.rpartition("edison ")[2].partition(" (")[0]
    return edison(folder, *shlex.split(command))


@pytest.mark.parametrize("price", [0.03, 1, 15, 400])
@pytest.mark.parametrize(("cases", "length"), [(1, 1), (7, 3), (40, 9)])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.97])
def test_a_run_goes_through_with_the_budget_that_it_names(
    edison: Edison, mini: Folder, price: float, cases: int, length: int, share: float
) -> None:
    write_cases(mini, cases, length)
    write_models(mini, price, ", params: {max_tokens: 200}" if share else "")
    whole = 0.0
    if share:
        mini.edit("edison.yaml", "project: mini", "project: mini\ndefaults: {budget_usd: 1000}")
        whole = json.loads(edison(mini, "run", "--json").out)["runs"][0]["cost_microusd"] / 1e6
        (mini.path / ".edison/results.db").unlink()
    done = edison(mini, "run", "--budget", f"{share * whole:.6f}")
    if done.code == 0:
        return  # a reservation has room for more than it costs
    assert done.code == 4, done.all
    after = obey(edison, mini, done)
    assert after.code == 0, f"{done.err}\n{after.all}"


@pytest.mark.parametrize("price", [20, 400])
def test_so_does_a_run_whose_file_has_the_budget(
    edison: Edison, mini: Folder, price: float
) -> None:
    write_cases(mini, 12)
    write_models(mini, price)
    text = mini.read("experiments/hello.yaml")
    mini.write("experiments/hello.yaml", f"{text}stop: {{budget_usd: 0.01}}\n")
    done = edison(mini, "run")
    assert done.code == 4
    assert "Raise stop.budget_usd to " in done.err
    assert obey(edison, mini, done).code == 0


def test_a_budget_of_the_file_that_is_lower_is_named(edison: Edison, mini: Folder) -> None:
    write_cases(mini, 12)
    write_models(mini, 60)
    text = mini.read("experiments/hello.yaml")
    mini.write("experiments/hello.yaml", f"{text}stop: {{budget_usd: 0.02}}\n")
    done = edison(mini, "run", "--budget", "0.01")
    assert "Raise stop.budget_usd to " in done.err
    assert obey(edison, mini, done).code == 0, done.all


def test_a_run_that_is_resumed_names_it_too(edison: Edison, mini: Folder) -> None:
    write_cases(mini, 30)
    write_models(mini, 10, ", params: {max_tokens: 100}")
    mini.edit("edison.yaml", "project: mini", "project: mini\ndefaults: {budget_usd: 1000}")
    done = edison(mini, "run", "--budget", "0.06")
    assert done.code == 4
    run_id = done.err.rpartition("edison resume ")[2].split()[0]
    again = edison(mini, "resume", run_id, "--budget", "0.08")
    assert again.code == 4, again.all
    assert obey(edison, mini, again).code == 0


@pytest.mark.parametrize("price", [1, 50])
def test_a_refinement_goes_through_with_the_budget_that_it_names(
    edison: Edison, folder: Folder, price: float
) -> None:
    refined_project(folder)
    models = re.sub(r", price: [^}]*}|price: free", "", folder.read("models.yaml"))
    models = re.sub(r"}\n", f", price: {{in: {price}, out: {price}}}}}\n", models)
    folder.write("models.yaml", models)
    done = edison(folder, "refine", "hello", "--budget", "0.001", "--yes")
    assert done.code == 4, done.all
    assert "repeat with: edison refine hello --budget " in done.err
    after = obey(edison, folder, done)
    assert after.code != 4, f"{done.err}\n{after.all}"


@pytest.mark.parametrize("price", [20, 400])
def test_judges_are_calibrated_with_the_budget_that_is_named(
    edison: Edison, calibrated_project: Folder, price: float
) -> None:
    folder = calibrated_project
    assert edison(folder, "run", "-q").code in (0, 1)
    label_all(folder)
    write_models(folder, price)
    folder.edit("models.yaml", "model: judge", "model: judge, params: {temperature: 0.9}")
    text = folder.read("experiments/hello.yaml")
    folder.write("experiments/hello.yaml", f"{text}stop: {{budget_usd: 0.01}}\n")
    done = edison(folder, "calibrate", "--ask")
    assert done.code == 3, done.all
    (enough,) = re.findall(r"raise stop\.budget_usd to ([\d.]+), and repeat", done.err)
    folder.edit("experiments/hello.yaml", "budget_usd: 0.01", f"budget_usd: {enough}")
    after = edison(folder, "calibrate", "--ask")
    assert "could not be called" not in after.all


@given(st.integers(0, 10**13))
def test_amounts_are_rounded_up_to_a_cent(microusd: int) -> None:
    shown = round(float(in_cents(microusd)) * 1e6)
    assert microusd <= shown <= microusd + 10_000
    assert shown >= 10_000


def events(folder: Folder) -> list[dict[str, Any]]:
    with opened(folder.path / ".edison/results.db") as connection:
        rows = connection.execute(
            "select data from event where type = 'run:progress' order by rowid"
        )
        return [json.loads(row[0]) for row in rows.fetchall()]


def booked(folder: Folder) -> tuple[int, int]:
    with opened(folder.path / ".edison/results.db") as connection:
        (money,) = connection.execute(
            "select coalesce(sum(microusd), 0) from booked where scope like 'run:%'"
        ).fetchone()
        (cells,) = connection.execute("select count(*) from cell").fetchone()
    return int(money), int(cells)


def test_a_run_that_was_killed_goes_on_from_what_is_booked(edison: Edison, mini: Folder) -> None:
    write_cases(mini, 30)
    write_models(mini, 10)
    process = holding.start(mini, "run", calls=9)
    path = mini.path / ".edison/results.db"
    try:
        poll("some cells are there", lambda: path.exists() and events(mini) and booked(mini)[1] > 2)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=PATIENCE_S)
    money, cells = booked(mini)
    before = len(events(mini))
    with opened(path) as connection:
        states = dict(connection.execute("select state, count(*) from attempt group by 1"))
    assert states["reserved"] > 0, "calls were in flight, and may have been charged"
    done = edison(mini, "resume")
    assert done.code == 0, done.all
    first = events(mini)[before]
    assert first["cost_microusd"] >= money
    assert first["done"] > cells
    (line,) = done.err.splitlines()[-1:]
    assert "30 of 30 cells" in done.err, line
