"""Suggestions are kept once, found by a few digits, and only go where they may."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import pytest

from docs.sample import Sample
from edison_ci.errors import StoreError, UsageError
from edison_ci.features.upkeep.retention import Retention, collect
from edison_ci.records import SuggestionStatus
from edison_ci.store.database import open_database, open_for_change
from edison_ci.store.suggestions import (
    MAX_TEXT_CHARS,
    MOVES,
    Guardrail,
    Suggestion,
    SuggestionComment,
    add_comment,
    add_suggestion,
    comments_of,
    find_suggestion,
    list_suggestions,
    move_suggestion,
    rejections,
)

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator
    from pathlib import Path

ONE = Suggestion(
    experiment="support-reply",
    prompt="support-reply",
    path="prompts/support-reply.md",
    base_hash="a" * 64,
    diff="--- a/prompts/support-reply.md\n+++ b/prompts/support-reply.md\n",
    note="Say sorry first.",
    status=SuggestionStatus.PROPOSED,
    created_at="2026-11-15T12:00:00.000Z",
    new_hash="b" * 64,
    targets=("Empathy",),
    guardrails=(Guardrail("length", True, "+12 chars of at most 300"),),
    evidence={"proven": True, "sentence": "It helps.", "holdout": None},
    cost_microusd=1_200,
    runs=("r1",),
    simulated=True,
)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = open_database(tmp_path / "results.db")
    yield connection
    connection.close()


def test_a_suggestion_is_read_back_as_it_was_written(db: sqlite3.Connection) -> None:
    assert add_suggestion(db, ONE) == ONE
    assert find_suggestion(db, ONE.id) == ONE
    assert list_suggestions(db) == [ONE]
    told = ONE.as_json()
    assert told["id"] == ONE.hash[:12]
    assert told["guardrails"] == [
        {"rule": "length", "ok": True, "detail": "+12 chars of at most 300"}
    ]
    assert (told["status"], told["pull_request"], told["decided_by"]) == ("proposed", None, None)


def test_what_makes_it_another_one_is_what_it_changes_and_how() -> None:
    assert replace(ONE, note="other", evidence={}, hash="").hash == ONE.hash
    for change in ({"diff": "x"}, {"base_hash": "c" * 64}, {"prompt": "p"}, {"experiment": "e"}):
        assert replace(ONE, hash="", **change).hash != ONE.hash  # type: ignore[arg-type]  # by name


def test_measuring_again_replaces_the_evidence_and_adds_the_cost(db: sqlite3.Connection) -> None:
    add_suggestion(db, replace(ONE, status=SuggestionStatus.TRIED, evidence={}))
    later = replace(ONE, created_at="2026-11-16T12:00:00.000Z", cost_microusd=800)
    stored = add_suggestion(db, later)
    assert (stored.status, stored.cost_microusd) == (SuggestionStatus.PROPOSED, 2_000)
    assert stored.created_at == ONE.created_at
    assert list_suggestions(db) == [stored]


@pytest.mark.parametrize(
    "seen", [{"branch": "edison/refine/x-1"}, {"status": SuggestionStatus.REJECTED, "reason": "no"}]
)
def test_what_people_saw_or_decided_is_not_replaced(
    db: sqlite3.Connection, seen: dict[str, object]
) -> None:
    before = add_suggestion(db, replace(ONE, **seen))  # type: ignore[arg-type]  # by name
    assert add_suggestion(db, replace(ONE, note="again", evidence={})) == before


def test_only_legal_moves_are_made(subtests: pytest.Subtests, db: sqlite3.Connection) -> None:
    for start, to in product(SuggestionStatus, repeat=2):
        with subtests.test(start=start, to=to):
            diff = f"{ONE.diff}+{start} to {to}\n"
            suggestion = replace(ONE, status=start, diff=diff, hash="")
            before = add_suggestion(db, suggestion)
            assert before == suggestion, "no turn may find the suggestion of another"
            if to is start or to in MOVES[start]:
                moved = move_suggestion(db, before, to, decided_by="ada")
                assert (moved.status, moved.decided_by) == (to, "ada")
                assert find_suggestion(db, before.id) == moved
            else:
                with pytest.raises(UsageError, match=f"is {start}, and cannot become {to}"):
                    move_suggestion(db, before, to)
                assert find_suggestion(db, before.id) == before


def test_a_decision_about_what_has_moved_meanwhile_is_refused(db: sqlite3.Connection) -> None:
    seen = add_suggestion(db, ONE)
    move_suggestion(db, seen, SuggestionStatus.REJECTED)
    with pytest.raises(UsageError, match="is rejected by now"):
        move_suggestion(db, seen, SuggestionStatus.APPROVED)


def test_a_few_digits_are_enough_unless_they_fit_several(db: sqlite3.Connection) -> None:
    add_suggestion(db, replace(ONE, hash="abcdef0123456789" * 4))
    add_suggestion(db, replace(ONE, hash="abcd990123456789" * 4))
    assert find_suggestion(db, "ABCDE").hash.startswith("abcdef")
    with pytest.raises(UsageError, match="several"):
        find_suggestion(db, "abcd")
    for wanted in ("abc", "ffff", "", "%%%%", "abcd'"):
        with pytest.raises(UsageError, match=re.escape(f"no suggestion {wanted!r}")):
            find_suggestion(db, wanted)


def test_lists_are_newest_first_and_can_be_narrowed(db: sqlite3.Connection) -> None:
    other = replace(
        ONE,
        prompt="other",
        status=SuggestionStatus.TRIED,
        created_at="2026-11-16T00:00:00Z",
        hash="",
    )
    for one in (ONE, other):
        add_suggestion(db, one)
    assert list_suggestions(db) == [other, ONE]
    assert list_suggestions(db, prompt="other") == [other]
    assert list_suggestions(db, statuses=[SuggestionStatus.PROPOSED]) == [ONE]
    assert list_suggestions(db, experiment="none") == []


def test_rejections_with_a_reason_are_told_to_the_next_one(db: sqlite3.Connection) -> None:
    for number, reason in enumerate(["too long", "", "wrong tone"]):
        add_suggestion(
            db,
            replace(
                ONE,
                diff=str(number),
                hash="",
                status=SuggestionStatus.REJECTED,
                reason=reason,
                decided_at=f"2026-11-1{number}T00:00:00Z",
            ),
        )
    assert [one.reason for one in rejections(db, ONE.experiment, ONE.prompt)] == [
        "wrong tone",
        "too long",
    ]
    assert rejections(db, ONE.experiment, "other") == []


def test_comments_are_kept_in_order(db: sqlite3.Connection) -> None:
    add_suggestion(db, ONE)
    said = [SuggestionComment("ada", text, "2026-11-15T12:00:00Z") for text in ("one", "two\ud800")]
    for comment in said:
        add_comment(db, ONE, comment)
    assert [comment.text for comment in comments_of(db, ONE)] == ["one", "two\\ud800"]


def test_texts_of_models_are_bounded_and_need_not_be_unicode(db: sqlite3.Connection) -> None:
    add_suggestion(db, replace(ONE, diff="x" * 5_000_000, note="\ud800", hash=""))
    (found,) = list_suggestions(db)
    assert (len(found.diff), found.note) == (MAX_TEXT_CHARS + 3, "\\ud800")


def test_a_change_is_kept_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    with pytest.raises(UsageError), open_for_change(path) as connection:
        add_suggestion(connection, ONE)
        raise UsageError("no")
    with open_for_change(path) as connection:
        assert list_suggestions(connection) == []
        add_suggestion(connection, ONE)
    with open_for_change(path) as connection:
        assert list_suggestions(connection) == [ONE]


def test_a_row_that_somebody_broke_is_an_error_in_words(db: sqlite3.Connection) -> None:
    add_suggestion(db, ONE)
    db.execute("update suggestion set guardrails = '[1]'")
    with pytest.raises(StoreError, match=f"suggestion {ONE.id} cannot be read"):
        list_suggestions(db)


@pytest.mark.parametrize(
    ("status", "spared"), [(SuggestionStatus.PROPOSED, True), (SuggestionStatus.REJECTED, False)]
)
def test_gc_spares_what_an_open_suggestion_rests_on(
    db: sqlite3.Connection, status: SuggestionStatus, spared: bool
) -> None:
    sample = Sample(db)
    sample.run("r1", "2026-01-01T00:00:00Z")
    sample.run("r2", "2026-02-01T00:00:00Z", reuse=False)
    add_suggestion(db, replace(ONE, status=status))
    collect(db, Retention("2026-08-01T00:00:00Z"))
    left = db.execute("select count(text) from results where run_id = 'r1'").fetchone()[0]
    assert bool(left) is spared
