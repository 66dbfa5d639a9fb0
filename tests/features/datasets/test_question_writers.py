"""Models ranked by the cases that they wrote for a dataset."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.cli.lookup import cases_of
from edison_ci.config.case_facts import content_hash
from edison_ci.config.load import load_project
from edison_ci.features.datasets.case_discrimination import (
    DatasetDiscrimination,
    discrimination_of,
)
from edison_ci.features.datasets.health import QuestionQuality, examine, quality_of
from edison_ci.features.datasets.question_writers import (
    WriterCosts,
    WritersBoard,
    board_of_writers,
    costs_by_writer,
)
from edison_ci.records import Case, CaseId
from edison_ci.store.database import open_reader
from edison_ci.store.judgments import question_scores
from tests import item_bank
from tests.opened import opened

if TYPE_CHECKING:
    from edison_ci.stats.scores import Interval
    from tests.conftest import Edison, Folder

pytestmark = pytest.mark.daily


def verdict(score: float) -> str:
    names = ("clarity", "difficulty", "relevance", "originality", "overall")
    return json.dumps({"scores": {name: {"reason": "so", "score": score} for name in names}})


@pytest.fixture
def bank(folder: Folder) -> Folder:
    """Cases of a careful and a hasty writer, and a judge who knows them apart."""
    item_bank.build(folder)
    rows = [
        {"match": "/good-1?[02468]/", "text": verdict(9)},
        {"match": "good-", "text": verdict(7)},
        {"match": "easy-", "text": verdict(3)},
        {"match": "", "text": verdict(5)},
    ]
    folder.write("script.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    folder.edit(
        "models.yaml",
        "judge: {provider: sim, model: judge}",
        "judge: {provider: sim, model: script, options: {file: script.jsonl}}",
    )
    return folder


def board(folder: Folder) -> WritersBoard:
    """Return the writers of the only dataset."""
    project = load_project(folder.path)
    (experiment,) = project.experiments.values()
    cases = [*cases_of(project, experiment)]
    quality, apart, costs = QuestionQuality(), DatasetDiscrimination(), WriterCosts()
    examined = examine(lambda: cases, content_hash)
    results = folder.path / ".edison/results.db"
    if results.exists():
        with closing(open_reader(results)) as reader:
            quality = quality_of(question_scores(reader, experiment.id), examined.has)
            apart = discrimination_of(reader, experiment.id, examined.has)
            costs = costs_by_writer(reader, project)
    writers = board_of_writers(experiment.id, cases, (quality, apart), costs)
    assert writers is not None
    return writers


def some(interval: Interval | None) -> Interval:
    assert interval is not None
    return interval


def test_a_dataset_without_generated_cases_has_no_board() -> None:
    findings = (QuestionQuality(), DatasetDiscrimination())
    assert board_of_writers("hello", [Case(CaseId("ada"), {})], findings, WriterCosts()) is None


def add(folder: Folder, **row: Any) -> None:
    text = folder.read("datasets/names.jsonl")
    folder.write("datasets/names.jsonl", text + json.dumps(row) + "\n")


def test_writers_are_ranked_by_the_quality_of_their_questions(edison: Edison, bank: Folder) -> None:
    assert edison(bank, "dataset", "judge", "--yes").code == 0
    writers = board(bank)
    careful, hasty = writers.rows
    assert (careful.writer, careful.cases, careful.best_rank, careful.worst_rank) == (
        "careful", 15, 1, 1,
    )  # fmt: skip
    assert (hasty.writer, hasty.cases, hasty.best_rank, hasty.worst_rank) == ("hasty", 11, 2, 2)
    # 8 of the 15 were rated 9, 7 were rated 7, on 1 to 10.
    quality = some(careful.quality)
    assert quality.estimate == pytest.approx((8 * 8 / 9 + 7 * 6 / 9) / 15)
    assert quality.interval is not None
    assert quality.interval.low < quality.estimate < quality.interval.high
    (contrast,) = writers.contrasts
    assert (contrast.better, contrast.worse, contrast.significant) == (0, 1, True)
    assert contrast.p == contrast.p_holm < 0.001
    assert contrast.interval is not None and contrast.interval.low > 0
    assert contrast.method == "unpaired t (Welch)"


def test_the_share_that_tells_models_apart_comes_from_the_answers(
    edison: Edison, bank: Folder
) -> None:
    assert [row.separating for row in board(bank).rows] == [None, None]
    assert not board(bank).enough_answers
    assert edison(bank, "run", "--yes", "--repeats", "2").code == 0
    shares = {row.writer: some(row.separating) for row in board(bank).rows}
    careful, hasty = shares["careful"], shares["hasty"]
    assert (careful.estimate, careful.n, careful.method) == (1, 15, "Wilson")
    assert (hasty.estimate, hasty.n) == (0, 11)
    assert careful.interval is not None and hasty.interval is not None
    assert careful.interval.low > hasty.interval.high


def test_duplicates_are_counted_for_whoever_wrote_the_later_one(bank: Folder) -> None:
    long = "the parcel came on monday and the box was open on one side with"
    for name, writer in (("nails", ""), ("screws", "hasty"), ("NAILS", "careful")):
        metadata = {"written_by": writer} if writer else {}
        text = f"{long} {name}"
        add(bank, id=f"x-{name}", input={"name": text}, expected=name, metadata=metadata)
    rows = {row.writer: row for row in board(bank).rows}
    assert (rows["hasty"].same, rows["hasty"].near) == (0, 1)
    assert (rows["careful"].same, rows["careful"].near) == (1, 0), "case does not matter"
    assert (rows[""].same, rows[""].near, rows[""].cases) == (0, 0, 1)


def test_the_cost_of_a_case_is_what_its_writer_was_paid(edison: Edison, bank: Folder) -> None:
    assert edison(bank, "run", "--yes").code == 0
    assert {row.cost_microusd for row in board(bank).rows} == {None}
    with opened(bank.path / ".edison/results.db") as connection:
        for model, phase, state, cost, most in (
            ("careful", "dataset", "settled", 30_000, 50_000),
            ("careful", "dataset", "released", None, 50_000),
            ("careful", "dataset", "unknown", None, 15_000),
            ("careful", "generate", "settled", 70_000, 70_000),
            ("nobody", "dataset", "settled", 5_000, 5_000),
        ):
            connection.execute(
                "insert into attempt (request_hash, run_id, model, phase, state, est_microusd, "
                "cost_microusd, est_tokens, owner, sent_at) "
                "values ('x', 'dataset-1', ?, ?, ?, ?, ?, 1, 'me', '2026-01-01T00:00:00.000Z')",
                (model, phase, state, most, cost),
            )
    costs = {row.writer: row.cost_microusd for row in board(bank).rows}
    assert costs == {"careful": 45_000 / 15, "hasty": None}


def test_generated_cases_bring_their_cost_along(edison: Edison, folder: Folder) -> None:
    assert edison(folder, "init", ".").code == 0
    for name, price in (("small", "{in: 1, out: 2}"), ("large", "{in: 10, out: 20}")):
        old = f"{name}: {{provider: sim, model: {name}}}"
        folder.edit("models.yaml", old, f"{old[:-1]}, price: {price}}}")
    order = ("--hints", "late parcels and refunds of a shop", "--by", "small", "--by", "large")
    done = edison(folder, "dataset", "generate", *order, "--count", "20", "--yes")
    assert done.code == 0, done.all
    writers = board(folder)
    rows = {row.writer: row for row in writers.rows}
    assert set(rows) == {"", "small", "large"} and writers.simulated
    costs = json.loads(edison(folder, "costs", "--by", "model", "--json").out)["rows"]
    paid = {row["key"]: row["cost_microusd"] for row in costs}
    for name in ("small", "large"):
        assert paid[name] > 0
        assert (rows[name].cost_microusd or 0) * rows[name].cases == pytest.approx(paid[name])


def test_few_questions_are_a_tie(edison: Edison, bank: Folder) -> None:
    args = ("--yes", "--case", "good-0", "--case", "good-1", "--case", "coin-0", "--case", "easy-0")
    assert edison(bank, "dataset", "judge", *args).code == 0
    writers = board(bank)
    assert [(row.best_rank, row.worst_rank, row.few) for row in writers.rows] == [(1, 2, True)] * 2
    assert (writers.cases, writers.judges, writers.simulated) == (26, ("judge",), True)
    (contrast,) = writers.contrasts
    assert not contrast.significant


def test_one_question_has_no_error_bar(edison: Edison, bank: Folder) -> None:
    assert edison(bank, "dataset", "judge", "--yes", "--case", "good-0").code == 0
    writers = board(bank)
    quality = some(writers.rows[0].quality)
    assert (quality.n, quality.interval) == (1, None)
    assert quality.estimate == pytest.approx(8 / 9)
    assert writers.contrasts == () and writers.rows[1].best_rank is None


def test_a_judge_of_its_own_questions_is_named(edison: Edison, bank: Folder) -> None:
    bank.edit(
        "models.yaml",
        "hasty: {provider: sim, model: small}",
        "hasty: {provider: sim, model: judge}",
    )
    assert edison(bank, "dataset", "judge", "--yes", "--by", "hasty").code == 0
    assert board(bank).own_judges == ("hasty",)


def test_what_is_no_text_is_no_writer(bank: Folder) -> None:
    add(bank, id="odd", input={"name": "odd"}, metadata={"written_by": "\u001b[31mred" * 99})
    add(bank, id="other", input={"name": "other"}, metadata={"written_by": {"a": 1}})
    cases = {row.writer: row.cases for row in board(bank).rows}
    assert cases[""] == 1
    assert max(map(len, cases)) == 60
