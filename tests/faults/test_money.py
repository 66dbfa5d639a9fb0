"""Faults 10, 20 and 21: many processes, one database, one budget, and sudden deaths."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from tests.faults.stage import Stage, figure
from tests.loopback.script import rule
from tests.timing import PATIENCE_S, poll

if TYPE_CHECKING:
    from tests.faults.conftest import MakeStage

pytestmark = pytest.mark.daily

LONG = os.environ.get("FAULTS") == "long"
KILLS = 200 if LONG else 20
"""Of each process."""
CASES = 200 if LONG else 40
STEP_MICROUSD = 100_000 if LONG else 15_000
"""By how much the budget is raised when it stops a run."""
_MONEY_S = 5 * PATIENCE_S
"""A run may wait for the money of the others, which are killed and started all the time."""
LOOK_S = 0.2 if LONG else 0.02


@dataclass
class Watch:
    """Looks at the money all the time: never less booked than charged, never more than allowed."""

    stage: Stage
    cap_microusd: int
    looks: int = 0
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        assert self.wrong == []
        assert self.looks > 0

    def _work(self) -> None:
        while not self._over.wait(LOOK_S):
            if self.stage.count("booked"):
                # In this order: what is charged was booked before.
                charged = self.stage.server.ledger_total()
                booked = self.stage.booked()
                self.looks += 1
                if booked < charged:
                    self.wrong.append(f"{charged} charged, {booked} booked")
                if booked > self.cap_microusd:
                    self.wrong.append(f"{booked} booked, {self.cap_microusd} allowed")


POINTS = (
    ("reserve:done", 6),
    ("sending", 6),
    ("answered", 6),
    ("settle:done", 5),
    ("grading", 3),
    ("finish_cells:queued", 3),
    ("commit:before", 12),
    ("commit:after", 12),
)


class Driver(threading.Thread):
    """Runs an experiment, kills it so many times, and lets it finish at last."""

    def __init__(self, stage: Stage, experiment: str, raise_budget: Any) -> None:
        super().__init__(daemon=True)
        self._stage, self._experiment, self._raise_budget = stage, experiment, raise_budget
        self._chance = random.Random(experiment)
        self.kills = self.pauses = 0
        self.failure = ""

    def run(self) -> None:
        try:
            self._drive()
        except BaseException as error:
            self.failure = f"{self._experiment}: {error!r} after {self.kills} kills"
            raise

    def _drive(self) -> None:
        how = "run"
        while not self.failure:
            code = self._session(how)
            if code == 0:
                if self.kills >= KILLS:
                    return
                how = "run"  # everything is stored; deaths while reusing count as well
            elif code in (-signal.SIGKILL, 4):
                how = "resume" if self._has_run() else "run"

    def _session(self, how: str) -> int:
        plan: dict[str, Any] = {}
        outside = None
        if self.kills < KILLS:
            point, most = self._chance.choice(POINTS)
            plan = {"point": point, "nth": self._chance.randint(1, most)}
            if self._chance.random() < 0.3:
                outside = self._chance.uniform(0.1, 0.6)
        running = self._stage.start(how, self._experiment, **plan)
        if outside is not None:
            time.sleep(outside)
            running.send(signal.SIGKILL)
        done = running.wait(_MONEY_S)
        if done.code == -signal.SIGKILL:
            self.kills += 1
        elif done.code == 4:
            self.pauses += 1
            self._raise_budget()
        elif done.code != 0:
            self.failure = f"{how} {self._experiment} ended with {done.code}: {done.all}"
        return done.code

    def _has_run(self) -> bool:
        where = f"where experiment = '{self._experiment}' and status <> 'COMPLETED'"
        return self._stage.count(f"run {where}") > 0


@pytest.mark.nightly
def test_fault_10_random_kills_of_four_processes_under_one_budget(make_stage: MakeStage) -> None:
    names = ("one", "two", "three", "four")
    stage = make_stage(cases=CASES, experiments=names)
    expected = {name: stage.undisturbed(name) for name in stage.shape.experiments}
    stage.script()
    watch = Watch(stage, cap_microusd=5_000)
    changing = threading.Lock()

    def raise_budget() -> None:
        with changing:
            watch.cap_microusd += STEP_MICROUSD
            new = stage.folder.write(
                "edison.new",
                "version: 1\nproject: mini\n"
                f"settings: {{monthly_budget_usd: {watch.cap_microusd / 1e6:.6f}}}\n",
            )
            new.replace(stage.folder.path / "edison.yaml")

    raise_budget()
    drivers = [Driver(stage, name, raise_budget) for name in names]
    with watch:
        for driver in drivers:
            driver.start()
        for driver in drivers:
            driver.join()
    assert [driver.failure for driver in drivers if driver.failure] == []
    kills = sum(driver.kills for driver in drivers)
    assert kills == KILLS * len(names)
    assert sum(driver.pauses for driver in drivers) > 0, "the budget was never felt"
    stage.check_settled(lost=kills * 2 * stage.shape.concurrency)
    for name in names:
        assert stage.results(name) == expected[name]
    left = stage.rows("select distinct status from run where id in (select run_id from cell)")
    assert ("COMPLETED",) in left
    figure(
        f"{kills} kills, {watch.looks} looks at the money, {stage.states()}, "
        f"{len(stage.server.ledger_rows()) - stage.count('answer')} answers paid and lost, "
        f"charged {stage.server.ledger_total()}, booked {stage.booked()} microusd"
    )


@pytest.mark.nightly
def test_fault_20_experiments_side_by_side_share_their_calls(make_stage: MakeStage) -> None:
    stage = make_stage(cases=16, experiments=("one", "two"))
    expected = {name: stage.undisturbed(name) for name in stage.shape.experiments}
    stage.script(rule(model="small-1", latency_s=0.05))
    running = [stage.start("run", name) for name in stage.shape.experiments]
    for each in running:
        assert each.wait().code == 0
    # 24 different cases, 8 of them in both, each asked and judged.
    assert stage.count("answer") == len(stage.server.ledger_rows()) == 2 * 24
    stage.check_settled(lost=0)
    assert stage.states() == {"settled": 48}
    for name in stage.shape.experiments:
        assert stage.results(name) == expected[name]


@pytest.mark.nightly
def test_fault_20_a_call_of_a_dead_process_is_made_by_the_other(make_stage: MakeStage) -> None:
    stage = make_stage(cases=8, experiments=("one", "two"))
    expected = {name: stage.undisturbed(name) for name in stage.shape.experiments}
    stage.script(rule(do="hang", model="small-1", times=2))
    first = stage.start("run", "one")
    poll("two calls hang", lambda: stage.server.in_flight == 2)
    stage.dataset("two", range(8))
    second = stage.start("run", "two")
    poll("the second runs", lambda: stage.count("run where status = 'EXECUTING'") == 2)
    time.sleep(0.3)
    assert not second.has_ended, "it waits for what the first one has on its way"
    first.send(signal.SIGKILL)
    done = second.wait()
    assert done.code == 0, done.all
    assert first.wait().code == -signal.SIGKILL
    stage.script()
    assert stage.edison("resume", "one").code == 0
    stage.check_settled(lost=2)
    assert stage.results("one") == expected["one"]


def test_fault_20_a_second_run_of_an_experiment_is_refused_naming_the_first(stage: Stage) -> None:
    stage.script(rule(do="hang", model="small-1"))
    first = stage.start("run")
    poll("it runs", lambda: stage.server.in_flight == 2)
    second = stage.edison("run")
    assert second.code == 2
    assert stage.one("select id from run") in second.err
    assert stage.server.chats == 2, "nothing was asked in the name of the second"
    resumed = stage.edison("resume")
    assert resumed.code == 2
    first.send(signal.SIGKILL)
    first.wait()
    stage.script()
    assert stage.edison("resume").code == 0
    stage.check_settled(lost=4)


@pytest.mark.nightly
@pytest.mark.parametrize("cents", [1, 2])
def test_fault_21_two_runs_race_for_the_last_cent(make_stage: MakeStage, cents: int) -> None:
    stage = make_stage(
        cases=30,
        experiments=("one", "two"),
        judged=False,
        concurrency=6,
        monthly_usd=cents / 100,
        dollars_in=30,
    )
    stage.dataset("two", range(30, 60))
    stage.script(rule(latency_s=0.01))
    with Watch(stage, cap_microusd=cents * 10_000):
        running = [stage.start("run", name) for name in stage.shape.experiments]
        codes = [each.wait().code for each in running]
    assert codes == [4, 4]
    assert stage.rows("select distinct status, stopped_by from run") == [
        ("PAUSED", "budget: settings.monthly_budget_usd")
    ]
    stage.check_settled(lost=0)
    # What is left would not have paid for another call.
    left = cents * 10_000 - stage.booked()
    assert 0 <= left < stage.one("select max(est_microusd) from attempt")
    stage.monthly(1.0)
    for name in stage.shape.experiments:
        assert stage.edison("resume", name).code == 0
    stage.check_settled(lost=0)
    assert stage.count("cell where status = 'ok'") == 60


@pytest.mark.nightly
def test_fault_21_ten_runs_at_once_share_one_file_and_one_budget(make_stage: MakeStage) -> None:
    names = tuple(f"run-{number}" for number in range(10))
    stage = make_stage(cases=6, experiments=names, judged=False, monthly_usd=0.02, dollars_in=30)
    for number, name in enumerate(names):
        stage.dataset(name, range(6 * number, 6 * number + 6))
    with Watch(stage, cap_microusd=20_000):
        codes = [each.wait().code for each in [stage.start("run", name) for name in names]]
    assert set(codes) <= {0, 4}
    assert codes.count(4) > 1, "the budget is too small for all of them"
    stage.check_settled(lost=0)
    stage.monthly(1.0)
    paused = [name for name, code in zip(names, codes, strict=True) if code == 4]
    again = [stage.start("resume", name) for name in paused]
    assert [each.wait().code for each in again] == [0] * len(paused)
    stage.check_settled(lost=0)
    cells = stage.rows("select run_id, count(*) from cell where status = 'ok' group by run_id")
    assert [count for _, count in cells] == [6] * len(names), "each run has all of its cells"
    assert stage.server.chats == stage.count("answer") == 60, "no call was made twice"


@pytest.mark.nightly
@pytest.mark.parametrize("trial", range(3))
def test_fault_21_money_that_comes_free_is_waited_for(make_stage: MakeStage, trial: int) -> None:
    """Calls are booked at their worst case; as long as one is in flight nobody gives up."""
    stage = make_stage(cases=20, judged=False, concurrency=8)
    one = make_stage(cases=1, judged=False)
    assert one.edison("run").code == 0
    estimate, cost = one.rows("select est_microusd, cost_microusd from attempt")[0]
    budget = 19 * cost + estimate + 2 * 20
    done = stage.edison("run", "--budget", f"{budget / 1e6:.6f}")
    assert done.code == 0, done.all
    stage.check_settled(lost=0)
    assert stage.booked() <= budget
