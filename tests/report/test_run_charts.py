"""Charts of a run: what each shows of its numbers."""

from __future__ import annotations

import pytest

from edison_ci.report.run_charts import slices_chart
from edison_ci.results.scores import EstimateWithInterval
from edison_ci.results.slices import Slice

pytestmark = pytest.mark.daily


def slices(model: str, scores: tuple[float | None, ...]) -> list[Slice]:
    return [
        Slice(
            "hello" if model else "",
            model,
            "tag",
            tag,
            4,
            EstimateWithInterval(score, None, None, 4, None),
            EstimateWithInterval(score, None, None, 4, None),
        )
        for tag, score in zip(("a", "b"), scores, strict=True)
    ]


@pytest.mark.parametrize(
    ("second", "columns"),
    [(None, ("one",)), ((None, None), ("one", "two")), ((0.2, 0.4), ("all", "one", "two"))],
)
def test_the_map_of_slices_has_no_column_twice(
    second: tuple[float | None, ...] | None, columns: tuple[str, ...]
) -> None:
    over_all = (0.5, 0.7) if second is None or second[0] is None else (0.35, 0.55)
    models = [*slices("one", (0.5, 0.7)), *(slices("two", second) if second else [])]
    chart = slices_chart([*slices("", over_all), *models])
    assert chart is not None
    assert chart.columns == columns
    assert all(len(fields) == len(columns) for _, fields in chart.rows)
