"""A run whose workers are all gone waits for others, then pauses and can be resumed without."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from edison_ci.access.model_keys import model_caller
from edison_ci.api.sessions import SessionFactory
from edison_ci.config.load import load_project
from edison_ci.contracts import CallError, ErrorKind, WorkerState
from edison_ci.errors import ExitCode
from edison_ci.execute.run_options import RunOptions
from edison_ci.execute.steering import STRANDED_S
from edison_ci.execute.targets import RunTarget
from tests.execute.child import start
from tests.opened import opened

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from edison_ci.config.models import Model
    from edison_ci.contracts import CheckOutcome, Provider
    from edison_ci.records import Completion, Request
    from tests.conftest import Folder

CASES, ANSWERS = 40, 10


class Dying:
    """Two workers that are gone after a few answers, with what they have in flight."""

    def __init__(self, caller: Callable[[Model], Provider]) -> None:
        self._caller, self.answered, self.left = caller, 0, 2
        self.peak = self._calls = 0
        self.on_change: Callable[[], None] = lambda: None

    async def complete(self, model: Model, request: Request) -> Completion:
        self._calls += 1
        self.peak = max(self.peak, self._calls)
        try:
            found = await self._caller(model).complete(request)
            await asyncio.sleep(0.05)
        finally:
            self._calls -= 1
        self.answered += 1
        if self.answered > ANSWERS:
            if self.left:
                self.left = 0
                self.on_change()
            lost = CallError(ErrorKind.NETWORK, "worker w1 is gone")
            lost.lost_worker = True
            raise lost
        return found

    def provider_for(self, model: Model) -> Provider | None:
        return _Calls(self, model) if model.name == "small" else None

    def workers(self, model: Model) -> int:
        return self.left

    async def check(self, program: str, request: str) -> CheckOutcome | None:
        raise AssertionError("this run has no code")

    def states(self) -> Sequence[WorkerState]:
        return [WorkerState(f"w{number}", 0, 1, False) for number in range(self.left)]

    @property
    def stranded_s(self) -> float:
        return 0.0 if self.left else STRANDED_S + 1

    async def aclose(self) -> None:
        self.left = -1


class _Calls:
    def __init__(self, executor: Dying, model: Model) -> None:
        self._executor, self._model = executor, model

    async def complete(self, request: Request) -> Completion:
        return await self._executor.complete(self._model, request)


def test_a_run_without_workers_pauses_and_goes_on_here(mini: Folder) -> None:
    rows = (
        f'{{"id": "c{i}", "input": {{"name": "P {i}"}}, "expected": "P"}}\n' for i in range(CASES)
    )
    mini.write("datasets/names.jsonl", "".join(rows))
    mini.write(
        "models.yaml",
        "small: {provider: sim, model: small, limits: {concurrency: 3, attempts: 1}, "
        "price: {in: 1, out: 2}}\njudge: {provider: sim, model: judge}\n",
    )
    project = load_project(mini.path)
    executor = Dying(model_caller(project))

    async def connect(
        run_id: str,
        models: Sequence[Model],
        programs: Mapping[str, str],
        tell: Callable[[str], None],
    ) -> Dying:
        assert {model.name for model in models} == {"small", "judge"}
        assert not programs
        tell("two workers take calls")
        return executor

    factory = SessionFactory(connect=connect)
    with factory.session(RunTarget(project, project.experiment("hello"))) as session:
        ended = session.run(RunOptions())
    assert (ended.exit_code, ended.progress.stopped_by) == (ExitCode.PAUSED, "no workers")
    assert ended.progress.cells == {"ok": ANSWERS}, "a lost worker is no error of a cell"
    assert 3 < executor.peak <= 2 * 3, "the limit counts for each worker"
    assert executor.left == -1, "the workers are let go"
    with opened(mini.path / ".edison/results.db") as connection:
        (lost,) = connection.execute(
            "select count(*) from attempt where state = 'unknown' and model = 'small'"
        ).fetchone()
        assert 0 < lost <= 2 * 3, "calls of unknown fate stay booked"
    assert start(mini.path, "resume").progress.cells == {"ok": CASES}
