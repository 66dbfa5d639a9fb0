"""edison dataset verify: a person or a second model agrees with expected answers."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.features.assist.drafting import Drafter
from edison_ci.records import Message
from tests.cli.screen import OnTty
from tests.features.assist.test_dataset_generate import PATH, facts, rows_of, writer
from tests.loopback.script import rule
from tests.opened import opened

if TYPE_CHECKING:
    from edison_ci.records import Request
    from tests.conftest import Edison, Folder
    from tests.loopback.server import LoopbackServer

pytestmark = pytest.mark.daily

__all__ = ["facts", "writer"]


@pytest.fixture
def generated(facts: Folder) -> Folder:
    """Three cases of a model, one of another, one that nobody expects anything of."""
    rows: list[dict[str, Any]] = [
        {
            "id": f"gen-{n}",
            "input": {"question": f"Question {n}?"},
            "expected": f"answer {n}",
            "metadata": {"written_by": "other" if n == 3 else "sim", "seed": 1},
        }
        for n in range(4)
    ]
    rows.append({"id": "open", "input": {"question": "Why?"}, "metadata": {"written_by": "sim"}})
    facts.write(PATH, "".join(f"{json.dumps(row)}\n" for row in rows))
    facts.edit(
        "experiments/facts.yaml",
        "dataset: datasets/own.jsonl  # by hand",
        f"datasets: [datasets/own.jsonl, {{path: {PATH}, kind: synthetic}}]",
    )
    return facts


def verified(folder: Folder) -> list[str | None]:
    return [row["metadata"].get("verified_by") for row in rows_of(folder)]


def test_named_cases_are_agreed_with(edison: Edison, generated: Folder) -> None:
    before = generated.read(PATH).splitlines()
    done = edison(generated, "dataset", "verify", "--case", "gen-1", "--yes")
    assert done.code == 0, done.err
    assert verified(generated) == [None, "person", None, None, None]
    after = generated.read(PATH).splitlines()
    assert [a for a, b in zip(before, after, strict=True) if a != b] == [before[1]]
    assert (
        json.loads(edison(generated, "dataset", "stats", "--json").out)["experiments"][0][
            "unverified"
        ]
        == 3
    )
    plan = edison(generated, "plan").all
    assert "3 expected answers not verified by anyone: edison dataset verify" in plan
    with opened(generated.path / ".edison/results.db") as connection:
        audit = connection.execute("select action, entity from audit").fetchall()
    assert ("verify case", PATH) in audit
    again = edison(generated, "dataset", "verify", "--case", "gen-1", "--yes")
    assert (again.code, "every expected answer is verified" in again.out) == (0, True)


def test_without_a_terminal_it_says_what_to_do(edison: Edison, generated: Folder) -> None:
    done = edison(generated, "dataset", "verify", "--yes")
    assert done.code == 2
    assert "4 expected answers not verified" in done.err
    assert "--by MODEL" in done.err
    unknown = edison(generated, "dataset", "verify", "--case", "nobody", "--yes")
    assert (unknown.code, "has no case 'nobody'" in unknown.err) == (2, True)
    assert verified(generated) == [None] * 5


def test_a_person_goes_through_them_and_may_stop(generated: Folder) -> None:
    with OnTty(generated.path, "dataset", "verify", size=(100, 60)) as tty:
        tty.until(lambda text: "gen-0  1 of 4, by sim" in text and "q ends" in text)
        tty.press(b"x\n")
        tty.until(lambda text: text.count("q ends") == 2)
        tty.press(b"\n")
        tty.until(lambda text: "gen-1  2 of 4" in text and text.count("q ends") == 3)
        tty.press(b"n\n")
        tty.until(lambda text: "gen-2  3 of 4" in text and text.count("q ends") == 4)
        tty.press(b"q\n")
        tty.until(lambda text: "verified gen-0" in text)
        assert tty.end() == 0
    assert verified(generated) == ["person", None, None, None, None]


def test_a_second_model_agrees_with_what_is_not_its_own(
    edison: Edison, generated: Folder, writer: LoopbackServer
) -> None:
    generated.edit("datasets/facts-generated.jsonl", '"written_by": "other"', '"written_by": "web"')
    opinions = [
        {"case": 1, "own_answer": "answer 0", "agrees": True, "reason": "The same."},
        {"case": 2, "own_answer": "another", "agrees": False, "reason": "It is another."},
        {"case": 9, "own_answer": "x", "agrees": True, "reason": "Nobody asked."},
    ]
    writer.script[:] = [rule(text=json.dumps({"opinions": opinions}))]
    done = edison(generated, "dataset", "verify", "--by", "web", "--yes")
    assert done.code == 0, done.err
    assert "web agrees with 1 of 3 expected answers" in done.err
    assert "in doubt: gen-1: It is another." in done.err
    assert verified(generated) == ["web", None, None, None, None]
    sent = writer.requests[0].body.decode()
    assert "Question 0?" in sent
    assert "Question 3?" not in sent, "its own case is not asked about"
    only = edison(generated, "dataset", "verify", "--by", "web", "--case", "gen-3", "--yes")
    assert (only.code, "web wrote all of them" in only.err) == (2, True)


def test_a_reply_without_opinions_leaves_all_open(
    edison: Edison, generated: Folder, writer: LoopbackServer
) -> None:
    writer.script[:] = [rule(text="They all look fine to me!")]
    done = edison(generated, "dataset", "verify", "--by", "web", "--yes")
    assert "not asked: web returned no usable draft" in done.err
    assert verified(generated) == [None] * 5


@pytest.mark.nightly
def test_a_real_model_on_this_machine_keeps_to_the_form(
    edison: Edison, generated: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    generated.write(
        "models.yaml",
        generated.read("models.yaml")
        + "tiny: {provider: local, model: smollm2-135m-instruct, params: {max_tokens: 16}}\n",
    )
    whole = Drafter.request

    def short(*given: Any) -> Request:
        """Ask in a few words: such a model reads 40 in a second."""
        return replace(whole(*given), messages=(Message("user", "Case 1: 2 + 2 = 4. Agreed?"),))

    monkeypatch.setattr(Drafter, "request", short)
    done = edison(generated, "dataset", "verify", "--by", "tiny", "--case", "gen-0", "--yes")
    assert done.code == 0, done.err
    assert "tiny agrees with " in done.err
    assert "not asked" not in done.err, "its reply could be read, although it is a small model"
