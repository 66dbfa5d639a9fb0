"""edison calibrate and the judge's approval, from labels to gates."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.documents.yaml_text import read_yaml
from edison_ci.judges.approval import bound_text
from tests.bare import lacking
from tests.opened import opened

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Edison, Kept
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

CASES = 30
LABELS = "labels/tone.jsonl"
GATES = "gates:\n  - {metric: composite, at_least: 99%}\n  - {metric: errors, at_most: 5%}\n"


@pytest.fixture
def project(mini: Folder) -> Folder:
    """A project of 30 cases with a floor that nothing reaches, in Git, before any run."""
    rows = ({"id": f"c{i}", "input": {"name": f"P{i}"}, "expected": f"P{i}"} for i in range(CASES))
    mini.write("datasets/names.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    rubric = mini.read("rubrics/tone.yaml")
    mini.write(
        "rubrics/tone.yaml",
        rubric + f"calibration: {{labels: {LABELS}, min_n: 25}}\npass_at: 0.8\n",
    )
    text = mini.read("experiments/hello.yaml")
    mini.write("experiments/hello.yaml", text[: text.index("gates:")] + GATES)
    mini.git("init", "-q")
    mini.git("config", "user.email", "ann@example.com")
    return mini


def ask(folder: Folder, sql: str) -> list[tuple[Any, ...]]:
    with opened(folder.path / ".edison/results.db") as connection:
        return connection.execute(sql).fetchall()


def label_all(
    folder: Folder, said: Callable[[float], float] = lambda score: score, count: int = CASES
) -> None:
    """Write a label for each answer of the last run: what a person makes of the judge's score."""
    rows = ask(
        folder,
        "select c.case_id, c.case_hash, p.score, t.text from cell c join component p on "
        "p.cell_id = c.id and p.kind = 'rubric' join answer_text t using (request_hash, answer_no) "
        "where c.run_id = (select max(id) from run) and c.side = 'head' order by c.case_id",
    )
    lines = [
        {"case": case, "by": "ann@example.com", "scale": "0-1", "grade": round(said(score), 6),
         "output": text, "case_hash": case_hash, "criteria": {"Warmth": 5}}
        for case, case_hash, score, text in rows[:count]
    ]  # fmt: skip
    folder.write(LABELS, "".join(json.dumps(line) + "\n" for line in lines))


def run(edison: Edison, folder: Folder, *args: str) -> tuple[int, dict[str, Any]]:
    done = edison(folder, "run", "--json", *args)
    (told,) = json.loads(done.out)["runs"]
    return done.code, told


def calibrated(edison: Edison, folder: Folder, *args: str) -> dict[str, Any]:
    done = edison(folder, "calibrate", "--json", *args)
    assert done.code == 0, done.all
    (found,) = json.loads(done.out)["experiments"]
    assert isinstance(found, dict)
    return found


def approval(folder: Folder) -> dict[str, Any]:
    value: Any = read_yaml(folder.read("judge_approvals.yaml"), "judge_approvals.yaml").value
    (entry,) = value["approvals"]
    assert isinstance(entry, dict)
    return entry


@pytest.fixture
def approved(edison: Edison, project: Folder, kept: Kept) -> Folder:
    """The project after a run whose judge agrees with its labels, and was approved."""

    def make() -> None:
        run(edison, project)
        label_all(project)
        assert calibrated(edison, project)["judge_approval"]["approved"]

    return kept.begin("approved", project, make)


# --- the gate -------------------------------------------------------------------------------------


def test_without_a_approval_the_gates_of_a_judge_are_advisory(
    edison: Edison, project: Folder
) -> None:
    code, told = run(edison, project)
    composite, errors = told["gates"]
    assert (code, told["verdict"], errors["verdict"]) == (0, "pass", "pass")
    assert composite["verdict"] == "skipped"
    assert composite["detail"]["advisory"]["would_be"] == "fail"
    assert composite["sentence"].startswith("Advisory only, would be fail: ")
    assert composite["sentence"].endswith(
        "The judge 'judge' may not decide (no approval yet: edison calibrate hello)."
    )
    shown = edison(project, "status", "latest").out
    assert "  ADVISORY  composite: " in shown
    done = edison(project, "compare", "--gates", "--json")
    assert (done.code, json.loads(done.out)["verdict"]) == (0, "pass")


def test_with_a_approval_a_judge_decides(edison: Edison, approved: Folder) -> None:
    code, told = run(edison, approved)
    assert (code, told["verdict"]) == (1, "fail")
    assert told["gates"][0]["verdict"] == "fail"
    assert "advisory" not in told["gates"][0]["detail"]
    assert edison(approved, "compare", "--gates").code == 1
    kept = "select approved, kappa, lower_bound, n, cases from judge_approval order by approved"
    bound = approval(approved)["lower_bound"]
    assert ask(approved, kept) == [(0, None, None, 0, 0), (1, 1.0, bound, CASES, CASES)]


def change_rubric(folder: Folder) -> None:
    folder.edit("rubrics/tone.yaml", "Sounds friendly and warm.", "Sounds like a good friend.")


def change_instructions(folder: Folder) -> None:
    folder.write("judges/pointwise.md", "Judge like a strict headmaster, and give reasons.\n")


def change_model(folder: Folder) -> None:
    folder.edit("models.yaml", "model: judge}", "model: judge, params: {temperature: 0.9}}")


def change_labels(folder: Folder) -> None:
    line = {"case": "c1", "by": "bo", "scale": "thumbs", "grade": 0, "output": "Hello!"}
    folder.write(LABELS, folder.read(LABELS) + json.dumps(line) + "\n")


def change_objective(folder: Folder) -> None:
    folder.edit("experiments/hello.yaml", "objective: ", "objective: In verse. ")


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("change", "what"),
    [
        (change_rubric, "the rubric"),
        (change_instructions, "the judge's instructions"),
        (change_model, "the judge's model, parameters or package"),
        (change_labels, "the labels"),
        (change_objective, "the objective"),
    ],
)
def test_a_approval_is_stale_once_something_it_rests_on_changed(
    edison: Edison, approved: Folder, change: Callable[[Folder], None], what: str
) -> None:
    change(approved)
    code, told = run(edison, approved)
    assert (code, told["verdict"], told["gates"][0]["verdict"]) == (0, "pass", "skipped")
    reason = told["gates"][0]["detail"]["advisory"]["reason"]
    day = approval(approved)["date"]
    assert f"(stale approval, {what} changed since {day}: edison calibrate hello)" in reason
    calibrated(edison, approved, "--ask")
    after = run(edison, approved)[1]["gates"][0]
    assert "stale" not in json.dumps(after)


@pytest.mark.nightly
def test_experiments_with_objectives_of_their_own_have_an_approval_each(
    edison: Edison, approved: Folder
) -> None:
    text = approved.read("experiments/hello.yaml").replace("experiment: hello", "experiment: bye")
    approved.write("experiments/bye.yaml", text)
    change_objective(approved)
    reason = run(edison, approved, "hello")[1]["gates"][0]["detail"]["advisory"]["reason"]
    assert "stale approval, the objective changed" in reason
    assert run(edison, approved, "bye")[1]["gates"][0]["verdict"] == "fail"
    calibrated(edison, approved, "hello", "--ask")
    for name in ("hello", "bye"):
        assert run(edison, approved, name)[1]["gates"][0]["verdict"] == "fail", "both are approved"
    (approved.path / "experiments/bye.yaml").unlink()
    calibrated(edison, approved, "hello")
    assert approval(approved)["objective_hash"], "that of a gone objective is dropped"


def test_what_does_not_reach_the_judge_leaves_the_approval_as_it_is(
    edison: Edison, approved: Folder
) -> None:
    approved.edit("rubrics/tone.yaml", "min_n: 25", "min_n: 26")
    approved.write(LABELS, approved.read(LABELS).replace("\n", "\r\n") + "\n")
    assert run(edison, approved)[1]["gates"][0]["verdict"] == "fail"
    approved.edit("rubrics/tone.yaml", "min_n: 26", "min_n: 31")
    reason = run(edison, approved)[1]["gates"][0]["detail"]["advisory"]["reason"]
    assert reason == "judge 'judge' may not decide (30 labels, 31 are needed)"


def test_a_judge_that_disagrees_with_people_only_advises(edison: Edison, project: Folder) -> None:
    run(edison, project)
    label_all(project, said=lambda score: 1 - score)
    found = calibrated(edison, project)
    assert not found["judge_approval"]["approved"]
    assert found["judge_approval"]["reason"].endswith("the floor is 0.6")
    assert found["reports"][0]["kappa"]["estimate"] < 0
    code, told = run(edison, project)
    assert (code, told["gates"][0]["verdict"]) == (0, "skipped")


def test_agreement_that_may_be_luck_does_not_approve(edison: Edison, project: Folder) -> None:
    run(edison, project)
    scores = iter([0.0, 0.08, -0.08] * CASES)
    label_all(project, said=lambda score: min(1.0, max(0.0, score + next(scores))))
    found = calibrated(edison, project)
    kappa, decided = found["reports"][0]["kappa"], found["judge_approval"]
    assert kappa["lower_bound"] < 0.6 < kappa["estimate"]
    assert not decided["approved"]
    assert decided["reason"].endswith("(one-sided 95%, 30 cases), the floor is 0.6")
    assert f"at least {bound_text(kappa['lower_bound'])} " in decided["reason"]
    shown = edison(project, "calibrate").out
    assert f"About {decided['cases_needed']} more labelled cases would do" in shown
    assert run(edison, project)[1]["gates"][0]["verdict"] == "skipped"


def test_answers_of_one_cluster_count_as_one_case(edison: Edison, project: Folder) -> None:
    rows = [json.loads(line) for line in project.read("datasets/names.jsonl").splitlines()]
    for index, row in enumerate(rows):
        row["cluster"] = f"k{index % 6}"
    project.write("datasets/names.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    run(edison, project)
    label_all(project)
    found = calibrated(edison, project)
    assert (found["reports"][0]["cases"], found["reports"][0]["kappa"]["units"]) == (CASES, 6)
    assert approval(project)["cases"] == 6


def test_a_change_cannot_take_a_judge_s_approval_away_to_pass(
    edison: Edison, approved: Folder
) -> None:
    approved.edit("experiments/hello.yaml", "composite, at_least: 99%", "composite, at_least: 1%")
    approved.write(".gitignore", ".edison/results.db*\n.edison/locks\n")
    approved.git("add", "-A")
    approved.git("commit", "-q", "-m", "approved")
    approved.edit("experiments/hello.yaml", "composite, at_least: 1%", "composite, at_least: 99%")
    approved.git("commit", "-qam", "stricter")
    (approved.path / "judge_approvals.yaml").unlink()
    done = edison(approved, "run", "--against", "HEAD", "--json")
    told = json.loads(done.out)
    assert (done.code, told["verdict"]) == (1, "fail")
    verdicts = [run["gates"][0]["verdict"] for run in told["runs"]]
    assert verdicts == ["fail", "skipped"], "on the base's eval suite its approval counts"


def test_labels_and_approvals_do_not_make_runs_incomparable(
    edison: Edison, approved: Folder
) -> None:
    first = ask(approved, "select id from run")[0][0]
    change_labels(approved)
    run(edison, approved)
    assert edison(approved, "compare", first, "latest").code == 0
    board = edison(approved, "leaderboard", "--json")
    assert board.code == 0, board.all


# --- the report -----------------------------------------------------------------------------------


def test_the_report_says_how_the_judge_does_and_writes_the_approval(
    edison: Edison, project: Folder
) -> None:
    run(edison, project)
    label_all(project, said=lambda score: max(0.0, score - 0.1))
    found = calibrated(edison, project)
    (report,) = found["reports"]
    assert report["n"] == report["cases"] == CASES
    assert report["bias"]["estimate"] == pytest.approx(0.1, abs=0.02)
    assert report["bias"]["low"] <= report["bias"]["estimate"] <= report["bias"]["high"]
    assert report["correlation"] > 0.9
    assert report["passes"] + report["fails"] == CASES
    assert found["criteria"][0]["name"] == "Warmth"
    assert found["labels"] == {
        "file": LABELS, "counted": CASES, "people": 1,
        "left_out": {"changed": 0, "gone": 0, "not_asked": 0, "failed": 0},
    }  # fmt: skip
    kept = approval(project)
    assert (kept["rubric"], kept["judges"], kept["models"]) == ("tone", ["judge"], ["sim/judge"])
    assert (kept["n"], kept["floor"], kept["simulated"]) == (CASES, 0.6, True)
    assert kept["kappa"] <= report["kappa"]["estimate"]
    assert kept["cases"] == report["kappa"]["units"] == CASES
    assert kept["lower_bound"] == pytest.approx(report["kappa"]["lower_bound"], abs=1e-4)
    assert kept["lower_bound"] < kept["kappa"] - 0.1
    assert edison(project, "validate").code == 0
    audit = ask(project, "select actor, entity from audit where action = 'calibrate'")
    assert audit == [("ann@example.com", "tone by judge")]
    shown = edison(project, "calibrate", "--dry-run").out
    assert "simulated" in shown
    assert "agreement (kappa)" in shown


@pytest.mark.nightly
def test_the_report_corrects_the_score_of_the_latest_run(edison: Edison, project: Folder) -> None:
    run(edison, project)
    for _ in range(20):
        assert edison(project, "grade", "--next", "--grade", "0.1", "-q").code == 0
    found = calibrated(edison, project)
    (correction,) = found["latest_run"]["human"]["models"][0]["corrections"]
    assert (correction["n"], correction["estimate"]) == (20, pytest.approx(0.1))
    shown = edison(project, "calibrate").out
    assert f"run {found['latest_run']['run_id']}, hello with small: Judge says " in shown
    assert "Checked against 20 human labels it is " in shown


def test_a_dry_run_writes_nothing(edison: Edison, project: Folder) -> None:
    run(edison, project)
    label_all(project)
    assert not calibrated(edison, project, "--dry-run")["judge_approval"]["written"]
    assert not (project.path / "judge_approvals.yaml").exists()


def test_few_labels_say_what_to_do(edison: Edison, project: Folder) -> None:
    run(edison, project)
    label_all(project, count=12)
    shown = edison(project, "calibrate").out
    assert "12 labels are too few: 20 are needed to correct a score, 25 for a" in shown
    assert "Continue with: edison grade hello --limit 13" in shown
    assert "ADVISORY  12 labels, 25 are needed" in shown


def test_no_judge_is_asked_while_the_library_of_another_one_is_missing(
    edison: Edison, approved: Folder
) -> None:
    model = (
        "{provider: vertex, model: m, options: {project: p, location: us-central1}, price: free}"
    )
    approved.write("models.yaml", approved.read("models.yaml") + f"far: {model}\n")
    change_rubric(approved)
    text = approved.read("experiments/hello.yaml").replace("experiment: hello", "experiment: other")
    approved.write("experiments/other.yaml", text.replace("[judge]", "[far]"))
    before = calls(approved)
    with lacking("litellm"):
        done = edison(approved, "calibrate", "--ask")
        assert (done.code, "'far' cannot be called: litellm is not" in done.err) == (2, True)
        assert calls(approved) == before
        assert edison(approved, "calibrate", "--dry-run").code == 0, "nothing is asked"
        assert edison(approved, "calibrate", "hello", "--ask").code == 0
    assert calls(approved) == before + CASES


def test_only_what_judges_never_said_is_bought_and_only_when_asked(
    edison: Edison, approved: Folder
) -> None:
    before = calls(approved)
    calibrated(edison, approved)
    assert calls(approved) == before
    change_rubric(approved)
    found = calibrated(edison, approved)
    assert found["labels"]["left_out"]["not_asked"] == CASES
    assert "add --ask" in edison(approved, "calibrate").out
    assert calls(approved) == before
    assert calibrated(edison, approved, "--ask")["reports"][0]["n"] == CASES
    assert calls(approved) == before + CASES


def calls(folder: Folder) -> int:
    return int(ask(folder, "select count(*) from attempt where phase = 'judge'")[0][0])


def test_labels_with_texts_work_without_the_results_they_came_from(
    edison: Edison, approved: Folder
) -> None:
    for path in (approved.path / ".edison").glob("results.db*"):
        path.unlink()
    assert calibrated(edison, approved, "--ask")["judge_approval"]["approved"]
    assert ask(approved, "select count(*) from run") == [(0,)]


def test_a_case_that_changed_no_longer_counts(edison: Edison, approved: Folder) -> None:
    text = approved.read("datasets/names.jsonl").replace('"name": "P7"', '"name": "Pip"')
    approved.write("datasets/names.jsonl", text)
    assert calibrated(edison, approved)["labels"]["left_out"]["changed"] == 1


def test_answers_known_by_their_hash_are_found_in_the_results(
    edison: Edison, approved: Folder
) -> None:
    for path in (approved.path / "labels").iterdir():
        path.unlink()
    approved.write("edison.yaml", approved.read("edison.yaml") + "settings: {private: true}\n")
    assert edison(approved, "grade", "--next", "--grade", "up").code == 0
    assert calibrated(edison, approved)["reports"][0]["n"] == 1


def test_an_editor_is_needed_to_write_a_approval(edison: Edison, project: Folder) -> None:
    run(edison, project)
    label_all(project)
    members = "members: [{email: ann@example.com, role: reviewer}]\n"
    project.write("edison.yaml", project.read("edison.yaml") + members)
    assert edison(project, "calibrate", "--dry-run").code == 0
    done = edison(project, "calibrate")
    assert (done.code, "calibrate needs an editor" in done.err) == (2, True)


@pytest.mark.parametrize(
    ("calibration", "said"),
    [
        ("", "the rubric of hello has no calibration"),
        (f"calibration: {{labels: {LABELS}}}\n", f"there are no human grades in {LABELS}"),
    ],
)
def test_without_labels_there_is_nothing_to_hold_judges_to(
    edison: Edison, mini: Folder, calibration: str, said: str
) -> None:
    mini.write("rubrics/tone.yaml", mini.read("rubrics/tone.yaml") + calibration)
    done = edison(mini, "calibrate", "hello")
    assert (done.code, said in done.err) == (2, True), done.all


@pytest.mark.nightly
def test_several_judges_are_reported_one_by_one_and_approved_together(
    edison: Edison, project: Folder
) -> None:
    project.write(
        "models.yaml",
        project.read("models.yaml")
        + "other: {provider: sim, model: judge, options: {noise: 0.3}, params: {seed: 7}}\n",
    )
    project.edit("experiments/hello.yaml", "[judge]", "[judge, other]")
    project.edit("rubrics/tone.yaml", "min_n: 25", "min_n: 25, min_kappa: 0.4")
    run(edison, project)
    label_all(project)
    found = calibrated(edison, project)
    assert [report["judge"] for report in found["reports"]] == ["judge", "other", None]
    assert found["reports"][2]["kappa"]["estimate"] == pytest.approx(1, abs=1e-4)
    assert approval(project)["judges"] == ["judge", "other"]
    assert "together" in edison(project, "calibrate", "--dry-run").out
    assert run(edison, project)[1]["gates"][0]["verdict"] == "fail"
