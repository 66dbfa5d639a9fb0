"""edison grade: what people say, by flags and at a real terminal."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import select
import sys
import termios
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.stats.corrected import random_order
from tests import forked
from tests.opened import opened
from tests.timing import PATIENCE_S

if TYPE_CHECKING:
    from tests.conftest import Edison, Folder

pytestmark = pytest.mark.daily

CASES = 12
LABELS = "labels/tone.jsonl"
CALIBRATION = f"calibration: {{labels: {LABELS}, min_n: 10}}\n"


@pytest.fixture
def ran(edison: Edison, mini: Folder) -> Folder:
    """A project of 12 cases with a rubric that asks for labels, after a run."""
    rows = ({"id": f"c{i}", "input": {"name": f"P{i}"}, "expected": f"P{i}"} for i in range(CASES))
    mini.write("datasets/names.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    mini.write("rubrics/tone.yaml", mini.read("rubrics/tone.yaml") + CALIBRATION)
    identify(mini, "ann@example.com")
    assert edison(mini, "run", "-q").code == 0
    return mini


def identify(folder: Folder, email: str) -> None:
    if not (folder.path / ".git").exists():
        folder.git("init", "-q")
    folder.git("config", "user.email", email)


def ask(folder: Folder, sql: str) -> list[tuple[Any, ...]]:
    with opened(folder.path / ".edison/results.db") as connection:
        return connection.execute(sql).fetchall()


def graded(edison: Edison, folder: Folder, *args: str) -> dict[str, Any]:
    done = edison(folder, "grade", "latest", "--json", *args)
    assert done.code == 0, done.all
    found = json.loads(done.out)
    assert isinstance(found, dict)
    return found


def lines(folder: Folder) -> list[dict[str, Any]]:
    return [json.loads(line) for line in folder.read(LABELS).splitlines()]


# --- by flags -------------------------------------------------------------------------------------


def test_a_grade_is_in_the_results_in_the_audit_and_in_the_labels(
    edison: Edison, ran: Folder
) -> None:
    told = graded(
        edison, ran, "--cell", "c3@small", "--grade", "4", "--note", "kind", "--criterion",
        "Warmth=5",
    )  # fmt: skip
    assert told["graded"]["score"] == 0.75
    assert told["graded"]["by"] == "ann@example.com"
    assert told["simulated"]
    row = ask(ran, "select case_id, actor, scale, score, passed, criteria, note from manual_grade")
    assert row == [("c3", "ann@example.com", "1-5", 0.75, 1, '{"Warmth":1.0}', "kind")]
    ((actor, entity, run_id, after),) = ask(
        ran, "select actor, entity, run_id, after from audit where action = 'grade'"
    )
    assert (actor, entity, run_id) == (
        "ann@example.com", f"cell {told['graded']['cell']}", told["run_id"]
    )  # fmt: skip
    assert json.loads(after)["score"] == 0.75
    (label,) = lines(ran)
    assert label.items() >= {
        "case": "c3", "by": "ann@example.com", "scale": "1-5", "grade": 4, "note": "kind",
        "criteria": {"Warmth": 5.0}, "experiment": "hello", "run": told["run_id"],
    }.items()  # fmt: skip
    assert label["output"] == edison_text(ran, "c3")
    assert edison(ran, "validate").code == 0


def edison_text(folder: Folder, case: str) -> str:
    sql = "select t.text from cell c join answer_text t using (request_hash, answer_no) "
    sql += "where case_id = "
    return str(ask(folder, f"{sql}'{case}'")[0][0])


def test_the_next_one_follows_a_random_order_and_makes_a_random_sample(
    edison: Edison, ran: Folder
) -> None:
    order = random_order(f"c{i}" for i in range(CASES))
    seen = [graded(edison, ran, "--next", "--grade", "up") for _ in range(4)]
    assert [told["graded"]["case"] for told in seen] == order[:4]
    assert [told["sample"]["cases"] for told in seen] == [1, 2, 3, 4]
    assert seen[-1]["sample"] == {
        "cases": 4, "of": CASES, "picked": 0, "left_out": 0, "needed": 20,
    }  # fmt: skip
    told = graded(edison, ran, "--cell", f"{order[9]}@small", "--grade", "down")
    assert (told["sample"]["cases"], told["sample"]["picked"]) == (4, 1)
    shown = edison(ran, "grade", "--cell", f"{order[9]}@small", "--grade", "down").err
    assert "; 1 more was picked by hand;" in shown
    other = graded(edison, ran, "--next", "--grade", "up", "--seed", "5")
    assert other["graded"]["case"] == next(
        case
        for case in random_order((f"c{i}" for i in range(CASES)), 5)
        if case not in {*order[:4], order[9]}
    )


def test_what_is_listed_is_blind_unless_somebody_asks(edison: Edison, ran: Folder) -> None:
    (cell, *_) = graded(edison, ran, "--list", "--limit", "3")["cells"]
    assert set(cell) == {"cell", "case", "input", "expected", "output"}
    (cell, *_) = graded(edison, ran, "--list", "--reveal")["cells"]
    assert (cell["model"], cell["side"]) == ("small", "head")
    shown = edison(ran, "grade", "--list").out
    assert ": score" not in shown
    assert "small" not in shown
    assert "--- small: score" in edison(ran, "grade", "--list", "--reveal").out
    assert not (ran.path / LABELS).exists()


def test_the_last_grade_of_a_person_counts_and_over_people_the_mean(
    edison: Edison, ran: Folder
) -> None:
    for value in ("2", "5"):
        graded(edison, ran, "--cell", "c1@small", "--grade", value)
    identify(ran, "bo@example.com")
    graded(edison, ran, "--cell", "c1@small", "--grade", "3")
    view = ask(ran, "select people, score, rating, passed, flagged from human_grades")
    assert view == [(2, 0.75, 0.75, 1.0, 0)]
    assert len(lines(ran)) == 3
    before = ask(ran, "select before from audit where action = 'grade' order by seq")
    assert [value and json.loads(value)["score"] for (value,) in before] == [None, 0.25, None]


def test_a_flag_is_no_grade_and_keeps_what_was_said(edison: Edison, ran: Folder) -> None:
    told = graded(edison, ran, "--next", "--flag", "--note", "ask Bo")
    assert (told["graded"]["score"], told["graded"]["flagged"]) == (None, True)
    assert told["answers"]["graded"] == 0
    assert not (ran.path / LABELS).exists()
    graded(edison, ran, "--cell", "c1@small", "--grade", "down")
    told = graded(edison, ran, "--cell", "c1@small", "--flag")
    assert (told["graded"]["score"], told["graded"]["flagged"]) == (0.0, True)
    listed = graded(edison, ran, "--list", "--flagged")
    assert listed["left"] == 2
    graded(edison, ran, "--cell", "c1@small", "--grade", "up")
    assert graded(edison, ran, "--list", "--flagged")["left"] == 1


def test_a_flag_is_taken_back_and_the_grade_and_note_stay(edison: Edison, ran: Folder) -> None:
    graded(edison, ran, "--cell", "c1@small", "--grade", "2", "--note", "too short")
    graded(edison, ran, "--cell", "c1@small", "--flag")
    told = graded(edison, ran, "--cell", "c1@small", "--unflag")["graded"]
    assert (told["score"], told["flagged"], told["note"]) == (0.25, False, "too short")
    assert graded(edison, ran, "--list", "--flagged")["left"] == 0
    again = edison(ran, "grade", "latest", "--cell", "c1@small", "--unflag")
    assert (again.code, "you have not flagged it" in again.err) == (2, True)
    both = edison(ran, "grade", "latest", "--next", "--flag", "--unflag")
    assert (both.code, "cannot be combined" in both.err) == (2, True)
    long = edison(ran, "grade", "latest", "--next", "--grade", "up", "--note", "x" * 10_001)
    assert (long.code, "the note has 10,001 characters" in long.err) == (2, True)


def test_explain_shows_what_people_said_beside_the_automatic_grade(
    edison: Edison, ran: Folder
) -> None:
    graded(edison, ran, "--cell", "c1@small", "--grade", "2", "--note", "too short", "--flag")
    shown = edison(ran, "explain", "c1@small").out
    assert "--- people\nann@example.com  25, flagged for a second look: too short\n" in shown
    (said,) = json.loads(edison(ran, "explain", "c1@small", "--json").out)["people"]
    assert (said["by"], said["score"], said["flagged"]) == ("ann@example.com", 0.25, True)
    assert json.loads(edison(ran, "explain", "c2@small", "--json").out)["people"] == []


def test_a_grade_holds_in_every_run_that_has_the_same_answer(edison: Edison, ran: Folder) -> None:
    graded(edison, ran, "--cell", "c1@small", "--grade", "up")
    assert edison(ran, "run", "-q").code == 0
    assert graded(edison, ran, "--list")["answers"] == {"all": CASES, "graded": 1}


def test_a_graded_answer_keeps_its_text_and_is_not_counted_as_reused(
    edison: Edison, ran: Folder
) -> None:
    before = json.loads(edison(ran, "admin", "cache", "stats", "--json").out)
    graded(edison, ran, "--cell", "c1@small", "--grade", "up")
    assert json.loads(edison(ran, "admin", "cache", "stats", "--json").out) == before
    old = "2000-01-01T00:00:00.000Z"
    with opened(ran.path / ".edison/results.db") as connection:
        connection.execute("drop trigger answer_is_kept")
        connection.execute("update answer set created_at = ?", (old,))
        connection.execute("update run set created_at = ?, finished_at = ?", (old, old))
    assert edison(ran, "run", "-q", "--no-cache").code == 0  # the newest run is spared anyway
    assert edison(ran, "admin", "gc").code == 0
    kept = "select c.case_id from cell c join answer_text t using (request_hash, answer_no) "
    kept += "join run r on "
    kept += f"r.id = c.run_id where r.created_at = '{old}'"
    assert ask(ran, kept) == [("c1",)]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--next"], "a grade is missing"),
        (["--next", "--grade", "1"], "1 may be the lowest or the highest grade"),
        (["--next", "--grade", "6"], "6 is not on any scale"),
        (["--next", "--grade", "nan"], "nan is not on any scale"),
        (["--next", "--grade", "2.5", "--scale", "1-5"], "2.5 is not on the scale 1-5"),
        (["--next", "--grade", "fine"], "'fine' is not a grade"),
        (["--next", "--grade", "up", "--scale", "1-5"], "'up' is a grade on the scale thumbs"),
        (["--next", "--grade", "4", "--criterion", "Warmt=3"], "'Warmt=3' is not CRITERION=SCORE"),
        (["--next", "--grade", "4", "--criterion", "warmth=9"], "'9' is not on the scale of Warmt"),
        (["--next", "--cell", "c1@small", "--grade", "up"], "--cell and --next cannot be combined"),
        (["--cell", "c99@small", "--grade", "up"], "has no case 'c99'"),
        (["--model", "smal", "--list"], "the run has no answers of 'smal'"),
        (["--grade", "up"], "apply to one answer"),
        ([], "interactive grading needs a terminal"),
    ],
)
def test_what_cannot_be_understood_changes_nothing(
    edison: Edison, ran: Folder, args: list[str], said: str
) -> None:
    done = edison(ran, "grade", "latest", *args)
    assert (done.code, said in done.err) == (2, True), done.all
    assert ask(ran, "select count(*) from manual_grade") == [(0,)]


def test_a_label_that_a_file_cannot_hold_says_what_is_wrong(edison: Edison, ran: Folder) -> None:
    identify(ran, f"{'a' * 200}@example.com")
    done = edison(ran, "grade", "--next", "--grade", "up")
    assert done.code == 2
    assert "invalid label: by has 212 characters; at most 200" in done.err
    assert "scale" not in done.err
    long = "c" * 201
    with opened(ran.path / ".edison/results.db") as connection:
        connection.execute("update cell set case_id = ? where case_id = 'c1'", (long,))
    identify(ran, "ann@example.com")
    done = edison(ran, "grade", "--cell", f"{long}@small", "--grade", "up")
    assert (done.code, "case has 201 characters; at most 200" in done.err) == (2, True), done.all
    assert ask(ran, "select count(*) from manual_grade") == [(0,)]


def test_a_very_long_answer_is_labelled_by_its_hash(
    edison: Edison, ran: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edison_ci.features.review.grading.MOST_OUTPUT_CHARS", 3)
    graded(edison, ran, "--cell", "c1@small", "--grade", "up")
    (line,) = lines(ran)
    assert "output" not in line and len(line["answer"]) == 64
    assert edison(ran, "validate").code == 0


def test_a_viewer_may_not_grade_and_that_is_written_down(edison: Edison, ran: Folder) -> None:
    members = "members:\n  - {email: ann@example.com, role: viewer}\n"
    members += "  - {email: bo@example.com, role: reviewer}\n"
    ran.write("edison.yaml", ran.read("edison.yaml") + members)
    done = edison(ran, "grade", "--next", "--grade", "up")
    assert (done.code, "grade needs a reviewer" in done.err) == (2, True)
    assert ask(ran, "select action from audit order by seq desc limit 1") == [("refused: grade",)]
    identify(ran, "bo@example.com")
    assert edison(ran, "grade", "--next", "--grade", "up").code == 0


def test_texts_of_a_private_project_stay_in_its_results(edison: Edison, ran: Folder) -> None:
    ran.write("edison.yaml", ran.read("edison.yaml") + "settings: {private: true}\n")
    graded(edison, ran, "--cell", "c2@small", "--grade", "up")
    (label,) = lines(ran)
    assert "output" not in label
    assert len(label["answer"]) == 64


def test_a_labels_file_that_ends_in_the_middle_of_a_line_is_not_broken_further(
    edison: Edison, ran: Folder
) -> None:
    graded(edison, ran, "--cell", "c2@small", "--grade", "up")
    ran.write(LABELS, ran.read(LABELS).rstrip("\n"))
    graded(edison, ran, "--cell", "c3@small", "--grade", "up")
    assert [label["case"] for label in lines(ran)] == ["c2", "c3"]


def test_a_labels_file_that_leads_out_of_the_project_is_not_written(
    edison: Edison, ran: Folder
) -> None:
    outside = ran.path.parent / "outside.jsonl"
    (ran.path / "labels").mkdir()
    (ran.path / LABELS).symlink_to(outside)
    done = edison(ran, "grade", "--next", "--grade", "up")
    assert done.code == 2
    assert not outside.exists()


# --- at a terminal --------------------------------------------------------------------------------


class Pty:
    """A real terminal with `edison grade` in it."""

    def __init__(self, folder: Folder, *args: str) -> None:
        self._master, slave = pty.openpty()
        # Ctrl-C throws away what is on its way to the screen, and may hit words that come after it.
        settings = termios.tcgetattr(slave)
        settings[3] |= termios.NOFLSH
        termios.tcsetattr(slave, termios.TCSANOW, settings)
        self._done = forked.Popen(
            [sys.executable, "-P", "-m", "edison_ci", "grade", *args],
            cwd=folder.path, env={**os.environ, "TERM": "dumb"},
            stdin=slave, stdout=slave, stderr=slave, close_fds=True, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # Ctrl-C comes from there
        )  # fmt: skip
        os.close(slave)
        self.seen, self._at = "", 0

    def until(self, text: str) -> Pty:
        """Read until a text is on the screen, after what was waited for before."""
        while (found := self.seen.find(text, self._at)) < 0:
            ready, _, _ = select.select([self._master], [], [], PATIENCE_S)
            data = b""
            if ready:
                with contextlib.suppress(OSError):  # the other end is closed
                    data = os.read(self._master, 65_536)
            if not data:
                self._done.kill()
                self._done.wait()
                raise AssertionError(f"{text!r} never came:\n{self.seen}")
            self.seen += data.decode(errors="replace").replace("\r\n", "\n")
        self._at = found + len(text)
        return self

    def type(self, keys: str) -> Pty:
        os.write(self._master, keys.encode())
        return self

    def ended(self) -> int:
        try:
            while data := os.read(self._master, 65_536):
                self.seen += data.decode(errors="replace").replace("\r\n", "\n")
        except OSError:
            pass
        os.close(self._master)
        return self._done.wait(timeout=PATIENCE_S)


def test_one_key_a_grade_with_notes_back_and_skip_and_quitting_keeps_all(ran: Folder) -> None:
    order = random_order(f"c{i}" for i in range(CASES))
    term = Pty(ran)
    term.until("1 of 12").until("> ").type("u")
    term.until("2 of 12").until("> ").type("d")
    term.until("3 of 12").until("> ").type("b")
    term.until("2 of 12").until("your grade was 0 out of 100").until("> ").type("n")
    term.until("note: ").type("was right after all\n").until("> ").type("u")
    term.until("3 of 12").until("> ").type("s")
    term.until("4 of 12").until("> ").type("x")
    term.until("'x' is not a command").until("> ").type("f")
    term.until("5 of 12").until("> ").type("?")
    term.until("q  quit").until("> ").type("q")
    term.until("2 graded, 1 flagged, 1 skipped, all saved.")
    assert term.ended() == 0
    assert "small" not in term.seen, "who wrote it is not shown"
    rows = ask(
        ran, "select case_id, score, note, flagged from manual_grade where id in "
        "(select max(id) from manual_grade group by case_id) order by id",
    )  # fmt: skip
    assert rows == [
        (order[0], 1.0, "", 0),
        (order[1], 1.0, "was right after all", 0),
        (order[3], None, "", 1),
    ]
    assert "A random sample so far: 2 of 12 cases" in term.seen


def test_an_interrupt_keeps_what_was_graded(ran: Folder) -> None:
    term = Pty(ran, "--scale", "1-5", "--reveal")
    term.until("1 of 12").until("--- small: score").until("> ").type("4")
    term.until("2 of 12").until("> ").type("c")
    term.until("Warmth (0 to 5, empty: none): ").type("5\n")
    term.until("Brevity (0 to 5, empty: none): ").type("\n").until("> ").type("2")
    term.until("3 of 12").until("> ").type("\x03")
    term.until("2 graded, all saved.")
    assert term.ended() == 130
    assert ask(ran, "select score, criteria from manual_grade order by id") == [
        (0.75, "{}"), (0.25, '{"Warmth":1.0}'),
    ]  # fmt: skip


def test_numbers_between_0_and_1_are_typed(ran: Folder) -> None:
    term = Pty(ran, "--scale", "0-1", "--limit", "2")
    term.until("1 of 2").until("> ").type("g")
    term.until("grade from 0 to 1: ").type("7\n")
    term.until("'7' is not a number from 0 to 1").until("> ").type("g")
    term.until("grade from 0 to 1: ").type("0.7\n")
    term.until("2 of 2").until("> ").type("\x04")
    term.until("1 graded, all saved.")
    assert term.ended() == 0
    assert ask(ran, "select scale, score from manual_grade") == [("0-1", 0.7)]


def test_answers_cannot_move_the_cursor(edison: Edison, mini: Folder) -> None:
    mini.write("datasets/names.jsonl", '{"id": "x", "input": {"name": "\\u001b[2J\\u0007"}}\n')
    mini.edit("models.yaml", "model: small", "model: echo")
    mini.edit("experiments/hello.yaml", 'checks:\n  - contains: "{{ expected }}"\n', "")
    identify(mini, "ann@example.com")
    assert edison(mini, "run", "-q").code == 0
    term = Pty(mini)
    term.until("1 of 1").until("> ").type("u").until("all saved.")
    assert term.ended() == 0
    assert "\x1b[2J" not in term.seen
    assert "\x07" not in term.seen
