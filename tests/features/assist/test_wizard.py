"""edison init --wizard: from an idea to an evaluated experiment, at a terminal."""

from __future__ import annotations

import json
import signal
from collections import Counter
from typing import TYPE_CHECKING, Self

import pytest

from tests.cli.screen import OnTty
from tests.opened import opened

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.conftest import Edison, Folder

pytestmark = pytest.mark.daily

HINTS = "what should the prompt do?"
THREE = "1 to 3 accepts"
ONE = "Enter accepts, e edits"
KEEP = "Enter keeps, e edits"
INPUTS = "What does the prompt get?"
DATA = "Enter generates 50 cases"
END = "Enter creates and runs it"
RESUME = "Enter continues, n starts over"

IDEA = "answer customers' mails, kind and short"
NAME = "answer-customers-mails"
HAPPY = (
    (HINTS, IDEA),
    (THREE, ""),
    (ONE, ""),
    (INPUTS, ""),
    (THREE, ""),
    (DATA, "10"),
    (ONE, ""),
    (ONE, ""),
    (ONE, ""),
    (ONE, ""),
    (END, ""),
)


class Asked(OnTty):
    """The wizard, and a person who answers it."""

    def __init__(self, folder: Path, *words: str, env: dict[str, str] | None = None) -> None:
        super().__init__(folder, "init", "--wizard", *words, size=(110, 60), env=env)
        self.seen: Counter[str] = Counter()
        self.answers = 0

    def __enter__(self) -> Self:
        return self

    def say(self, question: str, answer: str) -> None:
        """Wait for a question, and answer it."""
        self.wait(question)
        self.answers += 1
        self.press(answer.encode() + b"\n")

    def wait(self, question: str) -> None:
        self.seen[question] += 1
        self.until(lambda _: self.written.count(question) >= self.seen[question])

    def say_all(self, answers: Sequence[tuple[str, str]]) -> None:
        for question, answer in answers:
            self.say(question, answer)


def created(folder: Path) -> set[str]:
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and ".edison/" not in path.relative_to(folder).as_posix()
    }


EXPECTED_FILES = {
    "edison.yaml",
    "models.yaml",
    f"datasets/{NAME}.jsonl",
    f"experiments/{NAME}.yaml",
    f"prompts/{NAME}.md",
    f"rubrics/{NAME}.yaml",
}


def test_from_an_idea_to_an_evaluated_experiment_in_eleven_answers(
    edison: Edison, folder: Folder
) -> None:
    with Asked(folder.path) as tty:
        tty.say_all(HAPPY[:-1])
        tty.wait(END)
        assert created(folder.path) == {
            name for name in created(folder.path) if name.startswith(".edison-wizard/")
        }, "nothing is created before the end"
        text = tty.screen.text
        for said in ("small, large", "10 (generated), ", "5-8 in a loop", "a run free"):
            assert said in text
        tty.press(b"\n")
        tty.answers += 1
        code = tty.end()
        assert "edison dataset coverage" in tty.screen.text
    assert tty.answers == 11
    assert code in (0, 1, 5), "that of the run"
    assert created(folder.path) == EXPECTED_FILES
    assert edison(folder, "validate").code == 0
    with opened(folder.path / ".edison/results.db") as connection:
        (status, experiment) = connection.execute("select status, experiment from run").fetchone()
        cells = connection.execute("select count(*) from cell where status = 'ok'").fetchone()[0]
        audit = connection.execute("select action, entity, after from audit").fetchall()
    assert (status, experiment) == ("COMPLETED", NAME)
    assert cells == 20, "ten cases, two models"
    written = [(action, entity) for action, entity, _ in audit if action == "assist"]
    assert ("assist", f"prompts/{NAME}.md") in written
    assert ("assist", f"rubrics/{NAME}.yaml") in written
    assert written.count(("assist", f"experiments/{NAME}.yaml")) == 3
    made_by = json.loads(next(after for _, entity, after in audit if entity.startswith("rubrics")))
    assert made_by["model"] == "assistant"
    gates = folder.read(f"experiments/{NAME}.yaml")
    assert "{metric: composite, no_worse_than: base, margin: 10pp}" in gates
    assert "pass_at: 0.6" in folder.read(f"rubrics/{NAME}.yaml")
    rows = [json.loads(line) for line in folder.read(f"datasets/{NAME}.jsonl").splitlines()]
    assert len(rows) == 10
    assert all(row["metadata"]["written_by"] == "assistant" for row in rows)
    assert "kind: synthetic" in gates


@pytest.mark.nightly
@pytest.mark.parametrize("how", ["ctrl-c", "closed terminal"])
def test_it_continues_after_each_question_at_which_it_was_killed(
    edison: Edison, folder: Folder, how: str
) -> None:
    for number, (question, answer) in enumerate(HAPPY):
        with Asked(folder.path) as tty:
            if number:
                tty.say(RESUME, "")
            if number == len(HAPPY) - 1:
                tty.say(END, "c")
                assert tty.end() == 0
                break
            tty.say(question, answer)
            tty.wait(HAPPY[number + 1][0])
            if how == "ctrl-c":
                tty.press(b"\x03")
                assert tty.end() == 130
                assert "Nothing is created; your answers are kept." in tty.screen.text
                assert "edison init --wizard" in tty.screen.text
            else:
                tty.process.send_signal(signal.SIGHUP)
                assert tty.end() == -signal.SIGHUP
        assert all(name.startswith(".edison-wizard/") for name in created(folder.path))
    assert created(folder.path) == EXPECTED_FILES
    assert edison(folder, "validate").code == 0
    rows = folder.read(f"datasets/{NAME}.jsonl").splitlines()
    assert len(rows) == 10, "nothing is there twice"


EDITOR = r"""
case "$1" in
  *.txt) printf "%s" "Answer each mail in three sentences, and sign it." > "$1" ;;
  *.md) printf "\nSign with Ada.\n" >> "$1" ;;
  *.jsonl) sed -i 1d "$1" ;;
  *) sed -i -e "s/pass_at: 0.6/pass_at: 0.5/" -e "s/small, large/large/" \
       -e "s/pii: flag/pii: block/" -e "s/max_iterations: 8/max_iterations: 3/" "$1" ;;
esac
"""


def test_every_step_can_be_redone_and_edited(edison: Edison, folder: Folder) -> None:
    folder.write("edit.sh", EDITOR)
    env = {"EDITOR": f"sh {folder.path}/edit.sh", "VISUAL": ""}
    with Asked(folder.path, "shop", env=env) as tty:
        tty.say(HINTS, IDEA)
        for answer in ("r", "e2"):
            tty.say(THREE, answer)
        for answer in ("r", "e"):
            tty.say(ONE, answer)
        tty.say(INPUTS, "message, policy")
        for answer in ("r", "e3"):
            tty.say(THREE, answer)
        tty.say(DATA, "12")
        for answer in ("r", "e", *"re", *"re", *"re"):
            tty.say(ONE, answer)
        tty.say(END, "c")
        assert tty.end() == 0, tty.screen.text
    experiment = folder.read(f"shop/experiments/{NAME}.yaml")
    assert "Answer each mail in three sentences, and sign it." in experiment
    assert "\nmodels: [large]\n" in experiment
    assert "pii: block" in experiment
    assert "max_iterations: 3" in experiment
    assert "pass_at: 0.5" in folder.read(f"shop/rubrics/{NAME}.yaml")
    prompt = folder.read(f"shop/prompts/{NAME}.md")
    assert prompt.endswith("\nSign with Ada.\n")
    assert "{{ policy }}" in prompt
    assert len(folder.read(f"shop/datasets/{NAME}.jsonl").splitlines()) == 11
    assert edison(folder, "validate", "-C", "shop").code == 0


OWN = r"""
case "$1" in
  *.yaml) sed -i -e "s/name: Clarity/name: Manners/" "$1" ;;
  *) printf "Reply to {{ message }} in one line." > "$1" ;;
esac
"""


def test_every_draft_can_be_refused_for_something_of_ones_own(
    edison: Edison, folder: Folder
) -> None:
    folder.write("own.sh", OWN)
    env = {"EDITOR": f"sh {folder.path}/own.sh", "VISUAL": ""}
    with Asked(folder.path, "shop", env=env) as tty:
        tty.say(HINTS, IDEA)
        tty.say(THREE, "o")
        tty.say("Your objective", "Answer the mail in one line, and never promise anything.")
        tty.say(ONE, "o")
        tty.say(INPUTS, "")
        tty.say(THREE, "o")
        tty.say(DATA, "t")
        for number, (text, expected) in enumerate(
            [("Where is my parcel?", "tracking"), ("Can I send it back?", "")], start=1
        ):
            tty.say(f"case {number}, message", text)
            tty.say("what a right answer contains", expected)
        tty.say("case 3, message", "")
        tty.say(ONE, "")
        tty.say(ONE, "o")
        tty.say("Names of models", "small")
        tty.say(ONE, "o")
        tty.say("Names of judges", "judge")
        tty.say(ONE, "o")
        tty.say("Iterations at most", "4")
        tty.say("Dollars at most", "2.5")
        tty.say(END, "c")
        assert tty.end() == 0, tty.screen.text
    experiment = folder.read(f"shop/experiments/{NAME}.yaml")
    assert "Answer the mail in one line, and never promise anything." in experiment
    assert "models: [small]\n" in experiment
    assert "max_iterations: 4" in experiment
    assert "budget_usd: 2.5" in experiment
    assert 'icontains: {value: "{{ expected }}"' in experiment, "what a person wrote is checked"
    assert "name: Manners" in folder.read(f"shop/rubrics/{NAME}.yaml")
    rows = [json.loads(line) for line in folder.read(f"shop/datasets/{NAME}.jsonl").splitlines()]
    assert [row.get("expected") for row in rows] == ["tracking", None]
    assert edison(folder, "validate", "-C", "shop").code == 0
    with opened(folder.path / "shop/.edison/results.db") as connection:
        by_models = connection.execute("select count(*) from audit").fetchone()[0]
    assert by_models == 0, "nothing that a model wrote was taken"


def test_bad_answers_are_asked_again(edison: Edison, folder: Folder) -> None:
    folder.write("spoil.sh", 'printf "nonsense: [" > "$1"\n')
    folder.write("words.csv", "question,answer\nWhere is it?,tracking\nMay I return it?,30 days\n")
    folder.write("empty.csv", "")
    folder.write("hostile.csv", "\x1b]0;gone\x07question,answer\nWhere is it?,tracking\n")
    env = {"EDITOR": f"sh {folder.path}/spoil.sh", "VISUAL": ""}
    with Asked(folder.path, "shop", env=env) as tty:
        tty.say(HINTS, "mails")
        tty.wait("10 to 500 are needed")
        key = f"sk-proj-{'aB3' * 16}"
        tty.say(HINTS, f"answer mails with {key} please")
        tty.wait("this looks like a key, so it is not kept")
        assert key not in folder.read("shop/.edison-wizard/answers.json")
        tty.say(HINTS, IDEA)
        for bad in ("9", "x", "e7", "0"):
            tty.say(THREE, bad)
        tty.say(THREE, "o")
        tty.say("Your objective", "short")
        tty.wait("20 to 2,000 fit")
        tty.say(THREE, "2")
        tty.say(ONE, "yes")
        tty.say(ONE, "e")
        tty.say(ONE, "")
        for bad in ("1st", "a b", ",", ",".join("abcdefghijkl")):
            tty.say(INPUTS, bad)
        tty.say(INPUTS, "message")
        tty.say(THREE, "e")
        tty.wait("the inputs of the prompt differ: message")
        tty.say(THREE, "")
        for bad in ("5", "501", "nothing.csv", "spoil.sh", "empty.csv"):
            tty.say(DATA, bad)
        tty.say(DATA, "hostile.csv")
        tty.say("Which column is message?", "b")
        tty.say(DATA, "words.csv")
        tty.say("Which column is message?", "answers")
        tty.say("Which column is message?", "question")
        tty.say(ONE, "e")
        tty.say(ONE, "")
        tty.say(ONE, "o")
        tty.say("Names of models", "gpt-99")
        tty.say(ONE, "e")
        tty.say(ONE, "")
        tty.say(ONE, "")
        tty.say(ONE, "o")
        tty.say("Iterations at most", "many")
        tty.say(ONE, "o")
        tty.say("Iterations at most", "1000")
        tty.say("Dollars at most", "")
        tty.wait("max_iterations")
        tty.say(ONE, "")
        tty.say(END, "maybe")
        tty.say(END, "c")
        assert tty.end() == 0, tty.screen.text
        assert "\x1b]" not in tty.written, "a file does not write to the terminal"
    assert edison(folder, "validate", "-C", "shop").code == 0
    rows = [json.loads(line) for line in folder.read(f"shop/datasets/{NAME}.jsonl").splitlines()]
    assert [row["input"] for row in rows] == [
        {"message": "Where is it?"},
        {"message": "May I return it?"},
    ]


def test_one_can_go_back_and_forth_and_stop_for_now(edison: Edison, folder: Folder) -> None:
    with Asked(folder.path) as tty:
        tty.say(HINTS, "b")
        tty.wait("this is the first step")
        tty.say_all([(HINTS, IDEA), (THREE, ""), (ONE, "b")])
        tty.say(KEEP, "r")
        tty.say(THREE, "3")
        tty.say_all([(ONE, ""), (INPUTS, "b")])
        tty.say(KEEP, "")
        tty.say_all([(INPUTS, "text"), (THREE, ""), (DATA, "b"), (KEEP, "b")])
        tty.say("(Enter: text)", "message")
        tty.say_all([(THREE, "b"), (INPUTS, ""), (THREE, ""), (DATA, "t")])
        tty.say("case 1, message", "b")
        tty.say(DATA, "10")
        tty.say_all([(ONE, ""), (ONE, ""), (ONE, ""), (ONE, ""), (END, "b")])
        tty.say(KEEP, "")
        tty.say(END, "q")
        assert tty.end() == 0
        assert "Your answers are kept; continue with: edison init --wizard" in tty.screen.text
    assert not (folder.path / "edison.yaml").exists()
    with Asked(folder.path) as tty:
        tty.say(RESUME, "")
        tty.say(END, "c")
        assert tty.end() == 0
    assert "nothing that the reader does not need" in " ".join(
        folder.read(f"experiments/{NAME}.yaml").split()
    ), "the third draft was taken"
    assert edison(folder, "validate").code == 0


def test_answers_that_cannot_be_read_are_given_anew(folder: Folder) -> None:
    folder.write(".edison-wizard/answers.json", '{"version": 1, "step": ')
    with Asked(folder.path) as tty:
        tty.wait("Your earlier answers cannot be read, so they are asked again.")
        tty.wait(HINTS)
    folder.write(".edison-wizard/answers.json", '{"version": 1, "step": 3}')
    with Asked(folder.path) as tty:
        tty.say_all([(HINTS, IDEA), (THREE, "")])
        tty.wait(ONE)
    with Asked(folder.path) as tty:
        tty.say(RESUME, "n")
        tty.wait(HINTS)
        assert ONE not in tty.screen.text


def test_nothing_is_overwritten(edison: Edison, folder: Folder) -> None:
    folder.write(f"prompts/{NAME}.md", "mine")
    with Asked(folder.path) as tty:
        tty.say_all([*HAPPY[:-1], (END, "c")])
        assert tty.end() == 0
    assert folder.read(f"prompts/{NAME}.md") == "mine"
    assert (folder.path / f"prompts/{NAME}-2.md").exists()
    with Asked(folder.path) as tty:
        assert tty.end() == 2
        assert "edison.yaml is there already" in tty.screen.text


def test_with_a_key_a_real_model_may_draft_and_is_proposed(edison: Edison, folder: Folder) -> None:
    env = {"OPENAI_API_KEY": "sk-not-a-real-one"}
    drafter = "s: the simulator, free"
    with Asked(folder.path, env=env) as tty:
        tty.say(drafter, "gpt-99")
        tty.say(drafter, "s")
        tty.say_all([*HAPPY[:-1], (END, "c")])
        assert tty.end() == 0
    assert "key_env: OPENAI_API_KEY" in folder.read("models.yaml")
    assert "sk-not" not in folder.read("models.yaml")
    assert "models: [" in folder.read(f"experiments/{NAME}.yaml")
    assert "small" not in folder.read(f"experiments/{NAME}.yaml")
    assert edison(folder, "validate").code == 0
    with Asked(folder.path, "other", "--offline", env=env) as tty:
        tty.wait(HINTS)
        assert drafter not in tty.written


@pytest.mark.nightly
def test_a_model_that_cannot_be_reached_leaves_ones_own_words_or_the_simulator(
    edison: Edison, folder: Folder
) -> None:
    # The proxy refuses at once, and nothing leaves this machine.
    env = {"OPENAI_API_KEY": "sk-not-a-real-one", "HTTPS_PROXY": "http://127.0.0.1:9"}
    with Asked(folder.path, env=env) as tty:
        tty.say("s: the simulator, free", "openai/gpt-5-nano")
        tty.say(HINTS, "отвечай на письма клиентов вежливо и коротко")
        tty.say("r tries again, o writes your own", "o")
        tty.say("Your objective", "Отвечай на каждое письмо вежливо и не больше трёх строк.")
        tty.say("r tries again, o writes your own", "q")
        assert tty.end() == 0
    assert "sk-not" not in folder.read(".edison-wizard/answers.json")
    with Asked(folder.path, "--offline", env=env) as tty:
        tty.say(RESUME, "")
        tty.say_all([*HAPPY[2:-1], (END, "c")])
        assert tty.end() == 0
    assert "Отвечай на каждое письмо" in folder.read("experiments/first.yaml")
    assert "refiner: gpt-5-nano" in folder.read("edison.yaml")
    assert edison(folder, "validate").code == 0


def test_without_a_terminal_it_says_what_does_the_same(edison: Edison, folder: Folder) -> None:
    done = edison(folder, "init", "--wizard")
    assert done.code == 2
    for command in ("edison init --template", "edison assist objective", "edison dataset generate"):
        assert command in done.err
    assert [*folder.path.iterdir()] == []
    done = edison(folder, "init", "--wizard", "--github")
    assert (done.code, "edison init --github" in done.err) == (2, True)
