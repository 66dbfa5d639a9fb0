"""edison leaderboard --writers: models ranked by the cases that they wrote."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests import item_bank
from tests.opened import opened

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder

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


def told(edison: Edison, folder: Folder, *args: str) -> dict[str, Any]:
    done = edison(folder, "leaderboard", "--writers", "--json", *args)
    assert done.code == 0, done.all
    (found,) = json.loads(done.out)["experiments"]
    assert isinstance(found, dict)
    return found


def add(folder: Folder, **row: Any) -> None:
    text = folder.read("datasets/names.jsonl")
    folder.write("datasets/names.jsonl", text + json.dumps(row) + "\n")


def test_writers_are_ranked_by_the_quality_of_their_questions(edison: Edison, bank: Folder) -> None:
    assert edison(bank, "dataset", "judge", "--yes").code == 0
    found = told(edison, bank)
    careful, hasty = found["rows"]
    assert (careful["writer"], careful["cases"], careful["rank"]) == (
        "careful",
        15,
        {"best": 1, "worst": 1},
    )
    assert (hasty["writer"], hasty["cases"], hasty["rank"]) == (
        "hasty",
        11,
        {"best": 2, "worst": 2},
    )
    # 8 of the 15 were rated 9, 7 were rated 7, on 1 to 10.
    assert careful["quality"]["estimate"] == pytest.approx((8 * 8 / 9 + 7 * 6 / 9) / 15)
    assert careful["quality"]["low"] < careful["quality"]["estimate"] < careful["quality"]["high"]
    (one,) = found["comparisons"]
    assert (one["better"], one["worse"], one["shown"], one["family"]) == (0, 1, True, 1)
    assert one["p"] == one["p_holm"] < 0.001 and one["low"] > 0
    assert one["method"] == "unpaired t (Welch)"


def test_the_share_that_tells_models_apart_comes_from_the_answers(
    edison: Edison, bank: Folder
) -> None:
    before = told(edison, bank)
    assert [row["separating"] for row in before["rows"]] == [None, None]
    assert edison(bank, "run", "--yes", "--repeats", "2").code == 0
    rows = {row["writer"]: row["separating"] for row in told(edison, bank)["rows"]}
    assert (rows["careful"]["estimate"], rows["careful"]["n"]) == (1, 15)
    assert (rows["hasty"]["estimate"], rows["hasty"]["n"]) == (0, 11)
    assert rows["careful"]["low"] > rows["hasty"]["high"]
    assert rows["careful"]["method"] == "Wilson"


def test_duplicates_are_counted_for_whoever_wrote_the_later_one(
    edison: Edison, bank: Folder
) -> None:
    long = "the parcel came on monday and the box was open on one side with"
    for name, writer in (("nails", ""), ("screws", "hasty"), ("NAILS", "careful")):
        metadata = {"written_by": writer} if writer else {}
        text = f"{long} {name}"
        add(bank, id=f"x-{name}", input={"name": text}, expected=name, metadata=metadata)
    rows = {row["writer"]: row for row in told(edison, bank)["rows"]}
    assert rows["hasty"]["duplicates"] == {"same": 0, "near": 1}
    assert rows["careful"]["duplicates"] == {"same": 1, "near": 0}, "case does not matter"
    assert rows[None]["duplicates"] == {"same": 0, "near": 0}
    assert rows[None]["cases"] == 1
    shown = edison(bank, "leaderboard", "--writers").out
    assert "0 same, 1 near" in shown and "1 same, 0 near" in shown
    assert "(not generated)" in shown


def test_the_cost_of_a_case_is_what_its_writer_was_paid(edison: Edison, bank: Folder) -> None:
    assert edison(bank, "run", "--yes").code == 0
    unknown = edison(bank, "leaderboard", "--writers")
    assert "no call of a writer is booked, so the cost of a case is unknown" in unknown.err
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
    rows = {row["writer"]: row["case_cost_microusd"] for row in told(edison, bank)["rows"]}
    assert rows == {"careful": 45_000 / 15, "hasty": None}
    assert "$0.0030" in edison(bank, "leaderboard", "--writers").out


def test_generated_cases_bring_their_cost_along(edison: Edison, folder: Folder) -> None:
    assert edison(folder, "init", ".").code == 0
    for name, price in (("small", "{in: 1, out: 2}"), ("large", "{in: 10, out: 20}")):
        old = f"{name}: {{provider: sim, model: {name}}}"
        folder.edit("models.yaml", old, f"{old[:-1]}, price: {price}}}")
    order = ("--hints", "late parcels and refunds of a shop", "--by", "small", "--by", "large")
    done = edison(folder, "dataset", "generate", *order, "--count", "20", "--yes")
    assert done.code == 0, done.all
    found = told(edison, folder)
    rows = {row["writer"]: row for row in found["rows"]}
    assert set(rows) == {None, "small", "large"} and found["simulated"] is True
    costs = json.loads(edison(folder, "costs", "--by", "model", "--json").out)["rows"]
    paid = {row["key"]: row["cost_microusd"] for row in costs}
    for name in ("small", "large"):
        assert paid[name] > 0
        assert rows[name]["case_cost_microusd"] * rows[name]["cases"] == pytest.approx(paid[name])


def test_ties_and_few_questions_are_said_in_words(edison: Edison, bank: Folder) -> None:
    args = ("--yes", "--case", "good-0", "--case", "good-1", "--case", "coin-0", "--case", "easy-0")
    assert edison(bank, "dataset", "judge", *args).code == 0
    shown = edison(bank, "leaderboard", "--writers")
    lines = shown.out.splitlines()
    assert lines[0] == "hello  2 writers of 26 cases, judged by judge  simulated"
    assert [line.split()[:2] for line in lines[2:4]] == [["1-2", "careful"], ["1-2", "hasty"]]
    assert all(line.endswith("very few questions") for line in lines[2:4])
    assert lines[4].startswith("tie    careful and hasty: +")
    assert lines[5] == "1 comparison was made; after correction for that, none stand out."
    assert "too few answers to tell which cases tell models apart" in shown.err


def test_one_question_has_no_error_bar(edison: Edison, bank: Folder) -> None:
    assert edison(bank, "dataset", "judge", "--yes", "--case", "good-0").code == 0
    shown = edison(bank, "leaderboard", "--writers").out
    assert "88.9 (1 case: no error bar)" in shown
    found = told(edison, bank)
    assert found["comparisons"] == [] and found["rows"][1]["rank"]["best"] is None


def test_a_judge_of_its_own_questions_is_named(edison: Edison, bank: Folder) -> None:
    bank.edit(
        "models.yaml",
        "hasty: {provider: sim, model: small}",
        "hasty: {provider: sim, model: judge}",
    )
    assert edison(bank, "dataset", "judge", "--yes", "--by", "hasty").code == 0
    shown = edison(bank, "leaderboard", "--writers")
    assert "hasty judged questions of its own, which it may favour" in shown.err


def test_without_generated_cases_there_is_nothing_to_rank(edison: Edison, mini: Folder) -> None:
    done = edison(mini, "leaderboard", "--writers")
    assert (done.code, done.out) == (0, "")
    assert "no case says which model wrote it" in done.err


def test_a_writer_is_a_name_and_never_markup_of_the_terminal(edison: Edison, bank: Folder) -> None:
    add(bank, id="odd", input={"name": "odd"}, metadata={"written_by": "\u001b[31mred" * 99})
    add(bank, id="other", input={"name": "other"}, metadata={"written_by": {"a": 1}})
    done = edison(bank, "leaderboard", "--writers")
    assert done.code == 0 and "\x1b" not in done.out
    rows = {row["writer"]: row["cases"] for row in told(edison, bank)["rows"]}
    assert rows[None] == 1, "what is no text is no writer"
    assert max(len(name) for name in rows if name) == 60


def test_an_invalid_row_is_named(edison: Edison, bank: Folder) -> None:
    add(bank, id="good-0", input={"name": "again"})
    done = edison(bank, "leaderboard", "--writers")
    assert done.code == 2
    assert "datasets/names.jsonl:27" in done.err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--top", "3"], "--top does not go with --writers"),
        (["--recommend"], "--recommend does not go with --writers"),
        (["--min-score", "80"], "--min-score does not go with --writers"),
        (["helo"], "there is no experiment 'helo'"),
    ],
)
def test_what_does_not_go_together_is_refused(
    edison: Edison, bank: Folder, args: list[str], message: str
) -> None:
    done = edison(bank, "leaderboard", "--writers", *args)
    assert done.code == 2
    assert message in done.err
