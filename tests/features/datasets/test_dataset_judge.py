"""edison dataset judge: verdicts on questions are bought once, stored and shown."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.opened import opened

if TYPE_CHECKING:
    from tests.conftest import Edison, Folder

pytestmark = pytest.mark.daily

NAMES = ("clarity", "difficulty", "relevance", "originality", "overall")


def verdict(score: float, reason: str = "so it is") -> str:
    entry = {"reason": reason, "score": score}
    return json.dumps({"scores": dict.fromkeys(NAMES, entry)})


def script(folder: Folder, name: str, rows: list[dict[str, Any]]) -> None:
    folder.write(f"{name}.jsonl", "".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def project(mini: Folder) -> Folder:
    """Two cases and two judges with a mind of their own: kind, and strict about Bo."""
    mini.write(
        "models.yaml",
        "small: {provider: sim, model: small}\njudge: {provider: sim, model: judge}\n"
        "kind: {provider: sim, model: script, options: {file: kind.jsonl},"
        " limits: {concurrency: 1}}\n"
        "strict: {provider: sim, model: script, options: {file: strict.jsonl}, params: {seed: 7}}\n"
        "dear: {provider: sim, model: script, options: {file: kind.jsonl},"
        " price: {in: 100, out: 100}}\n",
    )
    script(mini, "kind", [{"match": "", "text": verdict(9, "clear \u001b[31mred")}])
    script(mini, "strict", [{"match": "Bo", "text": verdict(2)}, {"match": "", "text": verdict(8)}])
    return mini


def judged(edison: Edison, folder: Folder, *args: str) -> dict[str, Any]:
    done = edison(folder, "dataset", "judge", *args, "--json")
    assert done.code == 0, done.all
    found = json.loads(done.out)
    assert isinstance(found, dict)
    return found


def test_the_judges_of_the_experiment_score_every_case(edison: Edison, project: Folder) -> None:
    found = judged(edison, project)
    assert (found["judges"], found["simulated"], found["cases"]) == (["judge"], True, 2)
    assert [each["name"] for each in found["criteria"]] == list(NAMES)
    for each in found["criteria"]:
        assert each["scale"] == {"min": 1, "max": 10}
        assert 1 <= each["mean"]["low"] <= each["mean"]["estimate"] <= each["mean"]["high"] <= 10
    assert {question["case"] for question in found["questions"]} == {"ada", "bo"}


def test_several_judges_are_averaged_and_their_disputes_named(
    edison: Edison, project: Folder
) -> None:
    found = judged(edison, project, "--by", "kind", "--by", "strict")
    bo, ada = found["questions"]
    assert (bo["case"], bo["scores"]["overall"], bo["disputed"]) == ("bo", 5.5, list(NAMES))
    assert (ada["case"], ada["scores"]["overall"], ada["disputed"]) == ("ada", 8.5, [])
    assert ada["said"]["overall"]["strict"] == {"score": 8, "reason": "so it is"}
    assert bo["weak"] is False


def test_weak_questions_are_named_here_and_in_health(edison: Edison, project: Folder) -> None:
    done = edison(project, "dataset", "judge", "--by", "strict")
    assert done.code == 0
    assert done.out.startswith("hello  2 questions judged by strict  simulated\n")
    assert "1 weak question of 2 judged  simulated" in done.out
    assert "overall 2.0: so it is" in done.out
    health = edison(project, "dataset", "health")
    assert "1 weak question of 2 judged  simulated" in health.out
    told = json.loads(edison(project, "dataset", "health", "--json").out)["experiments"][0]
    assert told["questions"]["questions"][0]["weak"] is True


def test_show_has_the_quality_of_each_question(edison: Edison, project: Folder) -> None:
    before = edison(project, "dataset", "show").out
    assert "quality" not in before
    edison(project, "dataset", "judge", "--by", "kind")
    shown = edison(project, "dataset", "show")
    assert "quality (simulated)" in shown.out and "9.0" in shown.out
    full = edison(project, "dataset", "show", "--full").out
    assert "overall 9 (kind, simulated): clear" in full
    assert "\x1b" not in full
    case = json.loads(edison(project, "dataset", "show", "--json").out)["experiments"][0]["cases"][
        0
    ]
    assert case["quality"]["scores"]["clarity"] == 9


def test_no_verdict_is_bought_twice(edison: Edison, project: Folder) -> None:
    first = judged(edison, project)
    assert first["calls"] == {"made": 2, "reused": 0}
    again = judged(edison, project)
    assert again["calls"] == {"made": 0, "reused": 2}
    assert again["questions"] == first["questions"]
    fresh = judged(edison, project, "--no-cache", "--case", "bo")
    assert fresh["calls"] == {"made": 1, "reused": 0}


def test_a_budget_stops_it_and_the_same_command_goes_on(edison: Edison, project: Folder) -> None:
    # A call books 4,096 tokens out at $100 a million: the second does not fit beside the first.
    args = ("dataset", "judge", "--by", "dear", "--yes")
    stopped = edison(project, *args, "--budget", "0.1")
    assert stopped.code == 4
    assert "--budget is used up: the same command continues" in stopped.err
    done = edison(project, *args, "--budget", "5")
    assert done.code == 0
    costs = json.loads(edison(project, "costs", "--by", "phase", "--json").out)
    assert costs["rows"][0]["cost_microusd"] > 0


@pytest.mark.parametrize(
    "text",
    [
        "give it a ten",
        verdict(11),
        verdict(9) + verdict(1),
        '{"scores": {"charm": {"score": 9, "reason": "x"}}}',
        "",
        "{" * 50_000,
    ],
    ids=["prose", "off the scale", "two verdicts", "foreign", "empty", "braces"],
)
def test_a_hostile_judge_gives_no_score(edison: Edison, project: Folder, text: str) -> None:
    script(project, "kind", [{"match": "", "text": text}])
    done = edison(project, "dataset", "judge", "--by", "kind")
    assert done.code == 3
    assert "no judge returned a rating: kind: " in done.err
    with opened(project.path / ".edison/results.db") as connection:
        rows = connection.execute("select distinct score, status from question_score").fetchall()
    assert rows == [(None, "error")]


def test_a_judge_that_fails_beside_one_that_does_not_is_counted(
    edison: Edison, project: Folder
) -> None:
    script(project, "kind", [{"match": "", "text": "no"}])
    done = edison(project, "dataset", "judge", "--by", "kind", "--by", "strict")
    assert done.code == 0
    assert (
        "2 verdicts of kind could not be used: the reply holds no JSON object with 'scores'"
        in done.out
    )
    script(project, "kind", [{"match": "", "error": "INVALID_KEY"}])
    done = edison(project, "dataset", "judge", "--by", "kind", "--by", "strict", "--no-cache")
    assert done.code == 0 and "kind stopped: " in done.out


def test_criteria_of_your_own_take_the_place_of_the_usual_ones(
    edison: Edison, project: Folder
) -> None:
    found = judged(edison, project, "--rubric", "rubrics/tone.yaml")
    assert [each["name"] for each in found["criteria"]] == ["Brevity", "Warmth"]
    assert found["criteria"][0]["scale"] == {"min": 0, "max": 5}


def test_instructions_of_your_own_are_sent_and_change_the_hash(
    edison: Edison, project: Folder
) -> None:
    judged(edison, project)
    project.write("judges/question.md", "Be very strict.\n")
    assert judged(edison, project)["calls"]["made"] == 2
    with opened(project.path / ".edison/results.db") as connection:
        (hashes,) = connection.execute("select count(distinct hash) from question_score").fetchone()
    assert hashes == 1, "what was said before is replaced"


def test_an_edited_case_has_no_verdict_until_it_is_judged_again(
    edison: Edison, project: Folder
) -> None:
    judged(edison, project, "--by", "strict")
    project.edit("datasets/names.jsonl", '"name": "Bo"', '"name": "Boo"')
    done = edison(project, "dataset", "health")
    assert "0 weak questions of 1 judged" in done.out
    assert "1 case edited since: judge them again" in done.err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["helo"], "there is no experiment 'helo'"),
        (["--by", "nobody"], "there is no model 'nobody'"),
        (["--rubric", "rubrics/none.yaml"], "there is no rubric 'rubrics/none.yaml'"),
        (["--case", "nope"], "no case matches"),
        ([x for name in "abcdef" for x in ("--by", name)], "6 judges; at most 5"),
        (["--limit", "0"], "0 is not in the range"),
    ],
)
def test_what_cannot_be_asked_is_said(
    edison: Edison, project: Folder, args: list[str], message: str
) -> None:
    done = edison(project, "dataset", "judge", *args)
    assert done.code == 2
    assert message in done.err


def test_a_judge_without_a_price_is_refused(edison: Edison, project: Folder) -> None:
    model = "odd: {provider: openai_compatible, model: x, base_url: 'http://127.0.0.1:9/v1'}\n"
    project.write("models.yaml", project.read("models.yaml") + model)
    done = edison(project, "dataset", "judge", "--by", "odd")
    assert done.code == 2
    assert "the price of odd is unknown" in done.err


def test_whoever_may_not_spend_may_not_judge(edison: Edison, project: Folder) -> None:
    project.write(
        "edison.yaml",
        "version: 1\nproject: mini\nmembers:\n  - {email: owner@example.com, role: owner}\n",
    )
    project.git("init", "-q")
    project.git("config", "user.email", "test@example.com")
    done = edison(project, "dataset", "judge")
    assert done.code == 2
    assert "dataset judge needs an editor" in done.err


def test_reasons_go_with_the_other_old_texts(edison: Edison, project: Folder) -> None:
    judged(edison, project)
    path = project.path / ".edison/results.db"
    with opened(path) as connection:
        connection.execute("update question_score set judged_at = '2020-01-01T00:00:00.000Z'")
    done = edison(project, "admin", "gc")
    assert done.code == 0, done.all
    with opened(path) as connection:
        rows = connection.execute("select distinct reason, score is null from question_score")
        assert rows.fetchall() == [("", 0)]


# --- one sentence ---------------------------------------------------------------------------------

SENTENCE = "The name is an uncommon one"


def held(score: float, reason: str = "so it is") -> str:
    return json.dumps({"scores": {"statement": {"reason": reason, "score": score}}})


@pytest.fixture
def sentences(project: Folder) -> Folder:
    script(
        project,
        "strict",
        [
            {"match": r"/(?s)uncommon.*\nBo\n/", "text": held(2, "many are called Bo")},
            {"match": "uncommon", "text": held(9)},
            {"match": "\nBo\n", "text": verdict(8)},
            {"match": "", "text": verdict(3)},
        ],
    )
    return project


def test_judges_hold_each_question_to_one_sentence(edison: Edison, sentences: Folder) -> None:
    done = edison(sentences, "dataset", "judge", "--by", "strict", "--ask", f"  {SENTENCE} ")
    assert done.code == 0, done.all
    assert done.out.splitlines()[:4] == [
        "hello  2 questions judged by strict  simulated",
        "  The name is an uncommon one.  simulated",
        "    not true of 1 of 2 questions; mean 5.5 (1.0 to 10.0) on 1 to 10",
        "    bo  2.0: many are called Bo",
    ]
    assert "weak" not in done.out, "a sentence says nothing of the quality"


def test_a_sentence_is_stored_and_reused_under_its_own_words(
    edison: Edison, sentences: Folder
) -> None:
    found = judged(edison, sentences, "--by", "strict", "--ask", SENTENCE)
    assert found["calls"] == {"made": 2, "reused": 0} and found["criteria"] == []
    (said,) = found["statements"]
    assert (said["name"], said["not_true_of"]) == (f"{SENTENCE}.", ["bo"])
    assert (said["mean"]["estimate"], said["mean"]["n"]) == (5.5, 2)
    again = judged(edison, sentences, "--by", "strict", "--ask", f"{SENTENCE}.")
    assert again["calls"] == {"made": 0, "reused": 2}
    other = judged(edison, sentences, "--by", "strict", "--ask", f"Not that {SENTENCE}")
    assert other["calls"]["made"] == 2
    assert len(other["statements"]) == 1, "only what was asked now is shown"
    with opened(sentences.path / ".edison/results.db") as connection:
        names = connection.execute("select distinct criterion from question_score order by 1")
        assert names.fetchall() == [(f"Not that {SENTENCE}.",), (f"{SENTENCE}.",)]


def test_a_sentence_stands_beside_the_quality_and_does_not_change_it(
    edison: Edison, sentences: Folder
) -> None:
    judged(edison, sentences, "--by", "strict")
    before = json.loads(edison(sentences, "dataset", "health", "--json").out)["experiments"][0]
    judged(edison, sentences, "--by", "strict", "--ask", SENTENCE)
    after = json.loads(edison(sentences, "dataset", "health", "--json").out)["experiments"][0]
    assert after["questions"]["criteria"] == before["questions"]["criteria"]
    weak = [[q["weak"] for q in each["questions"]["questions"]] for each in (before, after)]
    assert weak == [[True, False]] * 2
    shown = edison(sentences, "dataset", "health").out
    assert "1 weak question of 2 judged" in shown
    assert "not true of 1 of 2 questions" in shown
    assert "uncommon one. 9" not in shown, "a weak question is named with its criteria only"
    table = edison(sentences, "dataset", "show").out.splitlines()
    assert "quality (simulated)  The name is an uncommon one..." in table[1]
    assert [line.split()[4:6] for line in table[2:4]] == [["3.0", "9.0"], ["8.0", "2.0"]]
    full = edison(sentences, "dataset", "show", "--full", "--case", "bo").out
    assert "The name is an uncommon one. 2 (strict, simulated): many are called Bo" in full


def test_the_simulated_judge_answers_a_sentence_offline(edison: Edison, project: Folder) -> None:
    found = judged(edison, project, "--offline", "--ask", "It is about a single person called Ada")
    assert (found["simulated"], found["cases"], found["failed"]) == (True, 2, {})
    assert found["statements"][0]["mean"]["n"] == 2
    said = found["questions"][0]["said"]["It is about a single person called Ada."]["judge"]
    assert said["reason"].endswith("with the sentence")


@pytest.mark.parametrize(
    ("sentence", "message"),
    [
        ("", "--ask has 0 characters; 10 to 400"),
        ("short", "--ask has 6 characters; 10 to 400"),
        ("long " * 100, "--ask has 500 characters; 10 to 400"),
        ("It is \u202e backwards", "--ask has invisible characters"),
    ],
)
def test_a_sentence_that_cannot_be_asked_is_refused(
    edison: Edison, project: Folder, sentence: str, message: str
) -> None:
    done = edison(project, "dataset", "judge", "--ask", sentence)
    assert done.code == 2
    assert message in done.err


def test_a_sentence_and_a_rubric_are_two_questions(edison: Edison, project: Folder) -> None:
    done = edison(project, "dataset", "judge", "--ask", SENTENCE, "--rubric", "rubrics/tone.yaml")
    assert done.code == 2
    assert "--rubric and --ask exclude each other" in done.err
