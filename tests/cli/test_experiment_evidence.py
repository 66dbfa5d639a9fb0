"""The evidence on the page of an experiment and in `edison trends`: sentences, marks, forecast."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci import utc
from edison_ci.store.database import open_database
from edison_ci.web.page_context import Args, Links, PageContext
from edison_ci.web.pages.experiment import experiment
from tests.cli.test_recommend import close
from tests.cli.test_trends import days_ago, scores, series
from tests.planted import Planted, plant

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

FLOOR = "gates:\n  - {metric: composite, at_least: 70%}\n"


def page_of(folder: Folder, **args: str) -> dict[str, Any]:
    with closing(open_database(folder.path / ".edison/results.db")) as connection:
        context = PageContext(
            connection=connection,
            path={"experiment": "hello"},
            args=Args({name: [value] for name, value in args.items()}),
            links=Links(str, "results", several=False),
            root=folder.path,
            now=utc.now(),
        )
        return experiment(context).values


def said(folder: Folder) -> dict[str, str]:
    return {each.kind: each.sentence for each in page_of(folder)["evidence"].findings}


def test_a_cheaper_model_that_is_as_good_is_stated_with_its_saving(
    edison: Edison, mini: Folder
) -> None:
    plant(mini, Planted("r1", days_ago(0), close(300)))
    found = said(mini)
    assert found["saving"].startswith("Use small: within 5 points of the best (worst plausible -")
    assert found["saving"].endswith("at 20% of the cost. It saves $0.35 in 1,000 answers.")
    assert found["cost per point"] == (
        "A point of score in 1,000 answers costs: large $0.0052 (85.0 points), small $0.0010 "
        "(84.0 points)."
    )
    assert "decline" not in found
    shown = edison(mini, "trends").out
    assert f"saving: {found['saving']}" in shown
    told = json.loads(edison(mini, "trends", "--json").out)["experiments"][0]["findings"]
    assert {each["kind"]: each["sentence"] for each in told} == found


def test_nothing_is_stated_that_the_cases_do_not_show(mini: Folder) -> None:
    plant(mini, Planted("r1", days_ago(0), close(12)))
    assert "saving" not in said(mini)


def test_a_decline_comes_first(mini: Folder) -> None:
    plant(mini, *series(0.8, 0.81, 0.8, 0.79, 0.8, 0.8, 0.6, fresh=True))
    found = page_of(mini)["evidence"].findings
    assert found[0].kind == "decline"
    assert found[0].sentence.startswith("Quality 60, was 80 (5-run reference): -25%.")


def test_a_clear_fall_has_a_forecast_on_its_chart_and_a_steady_series_none(mini: Folder) -> None:
    mini.edit("experiments/hello.yaml", "gates:\n", FLOOR)
    falling = [0.82 - 0.008 * n + 0.002 * (-1) ** n for n in range(12)]
    plant(mini, *series(*falling, fresh=True))
    score, cost, latency, errors = page_of(mini)["charts"]
    assert "forecast: " in score and "95% prediction limits" in score
    assert "floor 70" in score
    assert not any("forecast" in other for other in (cost, latency, errors))


def test_without_a_clear_fall_there_is_no_forecast(mini: Folder) -> None:
    mini.edit("experiments/hello.yaml", "gates:\n", FLOOR)
    plant(mini, *series(0.8, 0.81, 0.8, 0.79, 0.8, 0.8, 0.81, 0.8, 0.79, fresh=True))
    (score, *_) = page_of(mini)["charts"]
    assert "forecast" not in score
    assert "floor 70" in score


def test_changes_are_marked_by_their_kind(mini: Folder) -> None:
    file = {"objective": "o", "checks": [], "gates": [], "prompts": ["p.md"]}
    first = {"e.yaml": file, "p.md": ["1"], "m.yaml: small": [1], "the price of small": 1}
    snapshots = [
        first,
        {**first, "p.md": ["2"]},
        {**first, "p.md": ["2"], "m.yaml: small": [2]},
        {**first, "p.md": ["2"], "m.yaml: small": [2], "e.yaml": {**file, "checks": ["x"]}},
        {**first, "p.md": ["2"], "m.yaml: small": [2], "e.yaml": {**file, "checks": ["x"]}},
    ]
    plant(
        mini,
        *(
            Planted(
                f"r{n}", days_ago(5 - n), {"small": scores(0.7)}, snapshot=json.dumps(snapshot),
                plan_hash=str(n),
            )
            for n, snapshot in enumerate(snapshots)
        ),
    )  # fmt: skip
    (score, *others) = page_of(mini)["charts"]
    for words in ("new prompt version: ", "model changed: ", "eval suite changed: "):
        assert words in score
    assert "m.yaml: small" in score and "cases changed: " in score
    assert all("P: new prompt version; D: cases changed; M: model changed" in o for o in others)


def test_the_share_of_errors_has_its_interval(mini: Folder) -> None:
    some: list[float | None] = [None if i < 4 else 0.7 for i in range(40)]
    plant(
        mini,
        Planted("r0", days_ago(1), {"small": scores(0.7)}),
        Planted("r1", days_ago(0), {"small": some}, fresh=True),
    )
    errors = page_of(mini)["charts"][3]
    assert "Cells that ended in an error, with 95% CI" in errors
    assert "10% (4.0% to 23%)" in errors or "10% (4% to 23%)" in errors
