"""Preferences rank what was compared, once a case, and refuse what was never compared."""

from __future__ import annotations

from docs.gates import Graded, Results
from edison_ci.results.leaderboard import CaseFilter
from edison_ci.results.pairwise import Key, PreferenceRanking, preferences_of

VERSION = "b7c1e290"
MODELS = ("small", "medium", "large", "huge")
KNOWN = {Key("support-reply", VERSION, model): model for model in MODELS}


def play(results: Results, case: str, a: str, b: str, ab: str, ba: str) -> None:
    cells = [Graded(case, 0.5, model=model) for model in (a, b)]
    results.add(*cells)
    results.compare(case, ab, ba, a=cells[0], b=cells[1])


def ranked(
    results: Results, *runs: str, case_filter: CaseFilter | None = None
) -> PreferenceRanking:
    found = preferences_of(
        results.connection, runs or (results.run_id,), KNOWN, case_filter or CaseFilter()
    )
    assert found is not None
    return found


def test_who_wins_more_stands_higher_with_a_range_of_ranks(results: Results) -> None:
    for number in range(40):
        case, wins = f"c{number:02}", "a" if number % 10 else "b"
        play(results, case, "medium", "small", wins, wins)
        even = "a" if number % 2 else "b"
        play(results, case, "large", "medium", even, even)
    found = ranked(results)
    names = [placed.system for placed in found.ranking.placed]
    assert names[-1] == "small"
    ranks = {p.system: (p.best_rank, p.worst_rank) for p in found.ranking.placed}
    assert ranks["small"] == (3, 3)
    assert ranks["medium"] == ranks["large"] == (1, 2)
    assert found.ranking.n == 40


def test_what_was_never_compared_is_not_ranked_together(results: Results) -> None:
    for number in range(10):
        play(results, f"c{number}", "medium", "small", "a", "b")
        play(results, f"c{number}", "huge", "large", "a", "b")
    found = ranked(results)
    assert found.ranking.placed == ()
    assert found.as_json()["rows"] == []
    assert len(found.as_json()["islands"]) == 2


def test_of_several_runs_the_newest_counts(results: Results) -> None:
    newer = Results.of(results.connection, "20261117T090000-dddddd")
    for number in range(10):
        play(results, f"c{number}", "medium", "small", "a", "a")
        play(newer, f"c{number}", "medium", "small", "b", "b")
    found = ranked(results, newer.run_id, results.run_id)
    assert [placed.system for placed in found.ranking.placed] == ["small", "medium"]
    assert all(placed.n == 20 for placed in found.ranking.placed)


def test_only_cases_that_count_are_games(results: Results) -> None:
    for number in range(10):
        play(results, f"c{number}", "medium", "small", *(("a", "a") if number else ("b", "b")))
    found = ranked(results, case_filter=CaseFilter(quarantined=frozenset({"c1"})))
    assert found.ranking.n == 9
    assert preferences_of(results.connection, (results.run_id,), {}, CaseFilter()) is None


def test_a_pair_without_both_orders_is_no_game(results: Results) -> None:
    cells = [Graded("c1", 0.5, model=model) for model in ("medium", "small")]
    results.add(*cells)
    results.compare("c1", "a", None, a=cells[0], b=cells[1])
    assert preferences_of(results.connection, (results.run_id,), KNOWN, CaseFilter()) is None
