"""Models over several experiments."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from edison_ci.results.trends import overview_of
from edison_ci.store.database import open_reader

if TYPE_CHECKING:
    from tests.conftest import Folder


def test_a_mean_over_experiments_needs_a_score_in_each(mini: Folder) -> None:
    second = mini.read("experiments/hello.yaml").replace("experiment: hello", "experiment: again")
    mini.write("experiments/again.yaml", second.replace("[small]", "[small, large]"))
    mini.write("models.yaml", mini.read("models.yaml") + "large: {provider: sim, model: large}\n")
    for name in ("hello", "again"):
        assert mini.edison("run", name, "--yes", "-q").code in (0, 1)
    with closing(open_reader(mini.path / ".edison" / "results.db")) as connection:
        found = overview_of(connection, ["again", "hello"])
    assert [run.experiment for run in found.runs] == ["again", "hello"]
    small, large = found.models
    assert (small.model, small.measured) == ("small", 2)
    scores = [each.composite.estimate for each in small.totals if each is not None]
    assert small.score == pytest.approx(sum(each or 0.0 for each in scores) / 2)
    assert (large.model, large.measured, large.score) == ("large", 1, None)
    assert large.totals[1] is None
    assert found.simulations == ("simulated",)
