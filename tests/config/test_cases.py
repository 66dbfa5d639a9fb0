"""Cases have stable ids, are chosen and split by hash, and stream in bounded memory."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edison_ci.config.cases import STATIC, CaseFeed, fraction, is_holdout, sample
from edison_ci.config.experiment import DatasetEntry, Split
from edison_ci.documents.files import WorkingTree
from edison_ci.records import Case, CaseId
from tests.conftest import ROOT
from tests.timing import PATIENCE_S, slowness

if TYPE_CHECKING:
    from pathlib import Path


class Data:
    """A folder of datasets and what was wrong with them when they were last read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.said: list[str] = []

    def write(self, name: str, *rows: dict[str, Any] | str) -> None:
        lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
        (self.folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    def cases(self, *entries: dict[str, Any], types: dict[str, str] | None = None) -> list[Case]:
        given = entries or ({"path": "d.jsonl"},)
        datasets = tuple(DatasetEntry.model_validate(entry) for entry in given)
        feed = CaseFeed(WorkingTree(self.folder), datasets, types or {})
        found = list(feed)
        self.said = [str(problem) for problem in feed.problems]
        return found

    def ids(self, *entries: dict[str, Any]) -> list[str]:
        return [case.id for case in self.cases(*entries)]


@pytest.fixture
def data(tmp_path: Path) -> Data:
    return Data(tmp_path)


def a_case(case_id: str, cluster: str | None = None) -> Case:
    return Case(CaseId(case_id), {}, cluster=cluster)


# --- what a row becomes ---------------------------------------------------------------------------


def test_a_nested_row_becomes_a_case(data: Data) -> None:
    data.write(
        "d.jsonl",
        "",
        {
            "id": "a", "input": {"q": "why", "id": "inner"}, "expected": {"x": [1]},
            "tags": ["s", "t"], "difficulty": 3, "cluster": "c", "metadata": {"k": 1},
        },
    )  # fmt: skip
    (case,) = data.cases({"path": "d.jsonl", "kind": "adversarial"})
    assert case == Case(
        CaseId("a"), {"q": "why", "id": "inner"}, {"x": [1]}, ("s", "t"), 3, "c", {"k": 1},
        "adversarial", 2,
    )  # fmt: skip
    assert case.variables == {"q": "why", "id": "inner", "expected": {"x": [1]}}


def test_a_flat_row_becomes_the_same_case(data: Data) -> None:
    data.write("d.jsonl", {"id": "a", "q": "why", "n": 2, "expected": "e", "tags": []})
    (case,) = data.cases()
    assert case == Case(CaseId("a"), {"q": "why", "n": 2}, "e", (), line=1)
    data.write("d.jsonl", {"id": "a", "input": "text", "other": 1})
    assert data.cases()[0].inputs == {"input": "text", "other": 1}


def test_what_a_row_does_not_say_is_none(data: Data) -> None:
    nulls = dict.fromkeys(["id", "expected", "tags", "difficulty", "cluster", "metadata"])
    data.write("d.jsonl", {"input": {"q": "1"}}, {"input": {"q": "2"}, **nulls})
    for case in data.cases():
        assert (case.expected, case.difficulty, case.cluster) == (None, None, None)
        assert (case.tags, case.metadata, case.kind) == ((), {}, "golden")
        assert "expected" not in case.variables
    assert data.said == []


def test_csv_yaml_and_jsonl_give_the_same_cases(data: Data) -> None:
    row = {"input": {"q": "why?", "n": 2}, "expected": "e", "tags": ["x", "y"], "difficulty": 2}
    data.write("d.jsonl", row)
    data.write("d.csv", "q,n,expected,tags,difficulty", "why?,2,e,x;y,2")
    data.write("d.yaml", "- {q: why?, n: 2, expected: e, tags: [x, y], difficulty: 2}")
    found = [
        data.cases({"path": name}, types={"n": "number"})[0]
        for name in ("d.jsonl", "d.csv", "d.yaml")
    ]
    assert {case.id for case in found} == {found[0].id}
    assert {(str(case.inputs), case.expected, case.tags, case.difficulty) for case in found} == {
        ("{'q': 'why?', 'n': 2}", "e", ("x", "y"), 2)
    }


def test_the_case_of_prompts_without_variables_is_called_static() -> None:
    assert (STATIC.id, STATIC.inputs) == ("static", {})


# --- ids ------------------------------------------------------------------------------------------


def test_an_id_that_is_not_given_is_a_hash_of_the_content_that_never_drifts(data: Data) -> None:
    data.write(
        "d.jsonl",
        {"input": {"name": "Ada", "n": 1}, "expected": "x"},
        '{"input": {"q": "Grüße"}}',
    )
    assert data.ids() == ["9954be92732120b3", "a1fa0d4288c2957b"]


@pytest.mark.parametrize(
    "row",
    [
        '{"input": {"n": 1, "name": "Ada"}, "expected": "x"}',
        '{"expected": "x", "input": {"name": "Ada", "n": 1}}',
        '{"n":1,"expected":"x","name":"Ada"}',
        '{"input": {"name": "\\u0041da", "n": 1}, "expected": "x"}',
        '{"name": "Ada", "n": 1, "expected": "x", "tags": ["t"], "difficulty": 2, "cluster": "c"}',
    ],
)
def test_the_content_hash_depends_on_content_and_not_on_its_order(data: Data, row: str) -> None:
    data.write("d.jsonl", row)
    assert data.ids() == ["9954be92732120b3"]


@pytest.mark.parametrize(
    "row",
    [
        {"input": {"name": "Ada", "n": 2}, "expected": "x"},
        {"input": {"name": "Ada", "n": "1"}, "expected": "x"},
        {"input": {"name": "Ada", "n": True}, "expected": "x"},
        {"input": {"name": "Ada", "n": 1}},
        {"input": {"name": "Ada", "n": 1, "m": None}, "expected": "x"},
    ],
)
def test_other_content_has_another_id(data: Data, row: dict[str, Any]) -> None:
    data.write("d.jsonl", row)
    (found,) = data.ids()
    assert found != "9954be92732120b3" and len(found) == 16


READABLE_IDS = [
    "a",
    "A-1_b.c",
    "with space",
    "x" * 200,
    "日本",
    "größe",
    "привет",
    "a/b#c@d",
    "~",
    "😀",
]


def test_readable_ids_are_taken_as_they_are(subtests: pytest.Subtests, data: Data) -> None:
    for good in READABLE_IDS:
        with subtests.test(case_id=good):
            data.write("d.jsonl", {"id": good, "q": 1})
            assert data.ids() == [good]
            assert data.said == []


ODD_IDS = [
    ("", "is empty, padded or over 200 characters"),
    (" a", "is empty, padded or over 200 characters"),
    ("a ", "is empty, padded or over 200 characters"),
    ("a\n", "is empty, padded or over 200 characters"),
    ("x" * 201, "is empty, padded or over 200 characters"),
    ("a\tb", "contains U+0009"),
    ("a\u200bb", "contains U+200B (zero width space)"),
    ("a\u2060b", "contains U+2060 (word joiner)"),
    ("\ufeffa", "contains U+FEFF (zero width no-break space)"),
    ("a\u202eb", "contains U+202E (right-to-left override)"),
    ("a\u00adb", "contains U+00AD (soft hyphen)"),
    ("p\u0430ypal", "contains U+0430 (cyrillic small letter a)"),
    ("\u0391lpha", "contains U+0391 (greek capital letter alpha)"),
    ("a\u00a0b", "contains U+00A0 (no-break space)"),
    ("\uff41bc", "contains U+FF41 (fullwidth latin small letter a)"),
    ("\U0001d41abc", "contains U+1D41A (mathematical bold small a)"),
    ("\ufb01x", "contains U+FB01 (latin small ligature fi)"),
    ("cafe\u0301", "contains a combining character"),
    ("a\x00b".replace("\x00", "\x01"), "contains U+0001"),
]


def test_ids_that_could_be_mistaken_are_refused(subtests: pytest.Subtests, data: Data) -> None:
    for odd, message in ODD_IDS:
        with subtests.test(odd=odd):
            data.write("d.jsonl", {"q": 1, "id": odd})
            assert data.cases() == []
            assert len(data.said) == 1
            assert data.said[0].startswith("d.jsonl:1:16: row 1: id ") and message in data.said[0]


def test_a_repeated_id_names_both_rows(data: Data) -> None:
    data.write("d.jsonl", {"id": "a", "q": 1}, "", {"id": "b", "q": 2}, {"q": 3, "id": "a"})
    assert data.ids() == ["a", "b"]
    assert data.said == [
        "d.jsonl:4:16: row 3: id 'a' is used twice, first in d.jsonl:1 (give each case its own id)"
    ]


def test_a_repeated_id_is_found_across_files_and_formats(data: Data) -> None:
    data.write("d.jsonl", {"id": "x", "q": 1}, {"id": "a", "q": 1})
    data.write("e.csv", "id,q", "b,1", '"a","two\nlines"', "c,3")
    found = data.ids({"path": "d.jsonl"}, {"path": "e.csv", "kind": "synthetic"})
    assert found == ["x", "a", "b", "c"]
    assert data.said == [
        "e.csv:3:1: row 2: id 'a' is used twice, first in d.jsonl:2 (give each case its own id)"
    ]


def test_a_repeated_case_without_id_names_both_rows(data: Data) -> None:
    data.write("d.jsonl", {"q": 1}, {"q": 2}, {"input": {"q": 1}, "tags": ["t"]})
    assert len(data.ids()) == 2
    assert data.said == [
        "d.jsonl:3:1: row 3: the case is a duplicate, first in d.jsonl:1 "
        "(remove one of them, or give them ids)"
    ]


def test_the_same_file_twice_repeats_every_case(data: Data) -> None:
    data.write("d.jsonl", {"id": "a", "q": 1})
    assert data.ids({"path": "d.jsonl"}, {"path": "d.jsonl"}) == ["a"]
    assert "used twice, first in d.jsonl:1" in data.said[0]


def test_many_repeated_ids_are_found_in_one_more_reading(data: Data) -> None:
    """Looking each of them up by itself would read the file half a million times."""
    rows = [f'{{"id": "r{number}", "q": 1}}' for number in range(20_000)]
    data.write("d.jsonl", *rows, *['{"id": "r19999", "q": 2}'] * 20_000)
    limits = {"max_rows": 1_000_000, "max_bytes": 100_000_000}
    assert len(data.ids({"path": "d.jsonl", "limits": limits})) == 20_000
    assert len(data.said) == 21
    assert data.said[-1] == "d.jsonl: 19,980 further problems in this file (fix the first ones)"
    assert "first in d.jsonl:20000" in data.said[0]


def test_two_ids_of_the_same_hash_are_never_dropped_in_silence(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edison_ci.config.cases.hash", lambda _: 7, raising=False)
    data.write("d.jsonl", {"id": "a", "q": 1}, {"id": "b", "q": 1})
    assert data.ids() == ["a"]
    assert "row 2: id 'b' cannot be distinguished from another" in data.said[0]


# --- what is wrong with a row ---------------------------------------------------------------------


BAD_ROWS = [
    ('{"input": {"q": 1}, "expcted": "x"}', 21, "unknown key 'expcted' (did you mean 'exp"),
    ('{"input": {"q": 1}, "zzz": 1}', 21, "unknown key 'zzz' (allowed: cluster, difficulty"),
    ('{"q": 1, "id": 5}', 16, "id is 5, not a text (quote it)"),
    ('{"q": 1, "id": ["a"]}', 16, 'id is ["a"], not a text'),
    ('{"q": 1, "tags": "a"}', 18, "tags is not a list of texts"),
    ('{"q": 1, "tags": ["a", 1]}', 18, "tags is not a list of texts"),
    ('{"q": 1, "tags": [""]}', 18, "tags is not a list of texts"),
    ('{"q": 1, "difficulty": 0}', 24, "difficulty is 0; allowed: 1 to 5"),
    ('{"q": 1, "difficulty": 6}', 24, "difficulty is 6; allowed: 1 to 5"),
    ('{"q": 1, "difficulty": 2.0}', 24, "difficulty is 2.0; allowed: 1 to 5"),
    ('{"q": 1, "difficulty": true}', 24, "difficulty is true; allowed: 1 to 5"),
    ('{"q": 1, "difficulty": "3"}', 24, 'difficulty is "3"; allowed: 1 to 5'),
    ('{"q": 1, "cluster": 3}', 21, "cluster is not a text"),
    ('{"q": 1, "cluster": ""}', 21, "cluster is not a text"),
    ('{"q": 1, "metadata": [1]}', 22, "metadata is not an object"),
    ('{"q": 1, "typed": "7"}', 19, 'typed is "7", not a number (its type is declared'),
    ('{"input": {"typed": null}}', 21, "typed is null, not a number"),
    ('{"input": {"typed": true}}', 21, "typed is true, not a number"),
]


def test_a_bad_row_is_placed_and_the_next_one_is_read(
    subtests: pytest.Subtests, data: Data
) -> None:
    for row, column, message in BAD_ROWS:
        with subtests.test(row=row):
            data.write("d.jsonl", "", row, {"id": "good", "typed": 7})
            assert [case.id for case in data.cases(types={"typed": "number"})] == ["good"]
            assert len(data.said) == 1
            assert data.said[0].startswith(f"d.jsonl:2:{column}: row 1: {message}"), data.said


def test_a_bad_yaml_row_is_placed_too(data: Data) -> None:
    data.write("d.yaml", "- input:", "    q: 1", "  tagz: [a]", "- id: 5", "  q: 2")
    assert data.cases({"path": "d.yaml"}) == []
    assert data.said == [
        "d.yaml:3:3: row 1: unknown key 'tagz' (did you mean 'tags'?)",
        "d.yaml:4:7: row 2: id is 5, not a text (quote it)",
    ]


def test_a_bad_csv_cell_is_placed_too(data: Data) -> None:
    data.write("d.csv", "q,difficulty,id", "1,9,a", "2,2,b ")
    assert data.cases({"path": "d.csv"}) == []
    assert [line.split(": row")[0] for line in data.said] == ["d.csv:2:3", "d.csv:3:5"]


def test_after_twenty_problems_only_their_number_is_told(data: Data) -> None:
    data.write("d.jsonl", *[{"id": 5, "q": 1}] * 30, *["x"] * 5, *[{"id": "a", "q": 1}] * 3)
    assert data.ids() == ["a"]
    assert len(data.said) == 21
    assert data.said[-1] == "d.jsonl: 17 further problems in this file (fix the first ones)"


def test_a_huge_key_does_not_make_a_huge_message(data: Data) -> None:
    data.write("d.jsonl", {"input": {}, "k" * 500_000: 1})
    assert data.cases() == []
    assert len(data.said[0]) < 300


# --- which cases count ----------------------------------------------------------------------------

CHOICE = [
    {"id": "a", "q": 1, "tags": ["x"], "difficulty": 1, "metadata": {"lang": "de", "n": 1}},
    {"id": "b", "q": 2, "tags": ["x", "y"], "difficulty": 3, "metadata": {"lang": "en", "n": True}},
    {"id": "c", "q": 3, "tags": ["z"], "difficulty": 5, "metadata": {"lang": "de", "n": "1"}},
    {"id": "d", "q": 4},
]

CONDITIONS = [
    ({}, "abcd"),
    ({"tags": "x"}, "ab"),
    ({"tags": ["y", "z"]}, "bc"),
    ({"tags": ["none"]}, ""),
    ({"kind": "golden"}, "abcd"),
    ({"kind": ["synthetic"]}, ""),
    ({"difficulty": 3}, "b"),
    ({"difficulty": "3"}, "b"),
    ({"difficulty": "=3"}, "b"),
    ({"difficulty": "==3"}, "b"),
    ({"difficulty": ">=3"}, "bc"),
    ({"difficulty": "> 3"}, "c"),
    ({"difficulty": "<=3"}, "ab"),
    ({"difficulty": "<3"}, "a"),
    ({"id": "c"}, "c"),
    ({"id": ["d", "a"]}, "ad"),
    ({"metadata.lang": "de"}, "ac"),
    ({"metadata.lang": ["de", "en"]}, "abc"),
    ({"metadata.n": 1}, "a"),
    ({"metadata.n": True}, "b"),
    ({"metadata.n": "1"}, "c"),
    ({"metadata.gone": "x"}, ""),
    ({"tags": "x", "difficulty": ">=2"}, "b"),
    ({"tags": "x", "metadata.lang": "de", "id": ["a", "b", "c"]}, "a"),
]


def test_where_chooses(subtests: pytest.Subtests, data: Data) -> None:
    for where, expected in CONDITIONS:
        with subtests.test(where=where):
            data.write("d.jsonl", *CHOICE)
            assert "".join(data.ids({"path": "d.jsonl", "where": where})) == expected


def test_each_dataset_has_its_own_conditions(data: Data) -> None:
    data.write("d.jsonl", *CHOICE)
    data.write("e.jsonl", {"id": "e", "q": 1, "tags": ["x"]}, {"id": "f", "q": 2})
    found = data.cases(
        {"path": "d.jsonl", "where": {"tags": "z"}},
        {"path": "e.jsonl", "kind": "synthetic", "where": {"tags": "x"}},
    )
    assert [(case.id, case.kind) for case in found] == [("c", "golden"), ("e", "synthetic")]


# --- take -----------------------------------------------------------------------------------------


def test_take_is_a_sample_by_hash_that_never_drifts(data: Data) -> None:
    data.write("d.jsonl", *({"id": name, "q": name} for name in "abcd"))
    # sha256: a ca97..., b 3e23..., c 2e7d..., d 18ac...
    assert data.ids({"path": "d.jsonl", "take": 1}) == ["d"]
    assert data.ids({"path": "d.jsonl", "take": 2}) == ["c", "d"]
    assert data.ids({"path": "d.jsonl", "take": 3}) == ["b", "c", "d"]
    assert data.ids({"path": "d.jsonl", "take": 9}) == ["a", "b", "c", "d"]


@settings(deadline=None)
@given(
    old=st.sets(st.integers(0, 500), min_size=1, max_size=60),
    new=st.sets(st.integers(501, 999), max_size=20),
    count=st.integers(1, 20),
)
def test_new_rows_only_push_out_as_many_as_come_in(
    old: set[int], new: set[int], count: int
) -> None:
    before = {case.id for case in sample((a_case(str(n)) for n in old), count)}
    after = {case.id for case in sample((a_case(str(n)) for n in sorted(old | new)), count)}
    came = {case_id for case_id in after if int(case_id) in new}
    assert after - came <= before
    assert len(after) == min(count, len(old | new))
    assert len(before - after) == max(0, len(before) + len(came) - count)


def test_a_sample_keeps_the_order_of_the_file_and_not_of_the_hash(data: Data) -> None:
    names = [f"case-{number}" for number in range(50)]
    data.write("d.jsonl", *({"id": name, "q": name} for name in names))
    found = data.ids({"path": "d.jsonl", "take": 20})
    assert found == [name for name in names if name in found]
    data.write("d.jsonl", *({"id": name, "q": name} for name in reversed(names)))
    assert sorted(data.ids({"path": "d.jsonl", "take": 20})) == sorted(found)


def test_take_comes_after_where(data: Data) -> None:
    data.write("d.jsonl", *CHOICE)
    assert data.ids({"path": "d.jsonl", "where": {"tags": ["x", "z"]}, "take": 2}) == ["b", "c"]


# --- split ----------------------------------------------------------------------------------------


PLACES_IN_SPLIT = [
    (0, "a", 0.6170009362330673),
    (0, "b", 0.875512301340902),
    (0, "ada", 0.46853613154572327),
    (0, "return-green-blanket", 0.11005219250025988),
    (0, "case-1", 0.3230425593794945),
    (0, "é", 0.8991230170588607),
    (1, "a", 0.2554167428112489),
    (1, "case-1", 0.9219840485528104),
]


def test_the_split_is_a_formula_that_never_drifts(subtests: pytest.Subtests) -> None:
    """Evidence is only evidence while no case changes sides."""
    for seed, case_id, place in PLACES_IN_SPLIT:
        with subtests.test(seed=seed, case_id=case_id):
            assert fraction(f"{seed}:{case_id}") == place
            for holdout in (0.0, 0.2, 0.4, 0.6, 0.9):
                split = Split(holdout=holdout, seed=seed)
                assert is_holdout(a_case(case_id), split) is (place < holdout)


def test_the_default_split_holds_out_two_fifths_with_seed_zero() -> None:
    assert (Split().holdout, Split().seed) == (0.4, 0)


def test_adding_rows_never_moves_old_ones(data: Data) -> None:
    names = [f"case-{number}" for number in range(300)]
    data.write("d.jsonl", *({"id": name, "q": name} for name in names[:100]))
    before = {case.id: is_holdout(case, Split()) for case in data.cases()}
    data.write("d.jsonl", *({"id": name, "q": name, "tags": ["new"]} for name in reversed(names)))
    after = {case.id: is_holdout(case, Split()) for case in data.cases()}
    assert before.items() <= after.items()


@settings(deadline=None)
@given(
    cluster=st.text(min_size=1, max_size=10),
    ids=st.lists(st.text(min_size=1, max_size=10), min_size=2, max_size=5),
    seed=st.integers(0, 2**53),
)
def test_a_cluster_stays_on_one_side(cluster: str, ids: list[str], seed: int) -> None:
    split = Split(seed=seed)
    sides = {is_holdout(a_case(case_id, cluster), split) for case_id in ids}
    assert len(sides) == 1
    assert sides == {is_holdout(a_case(cluster), split)}


def test_the_share_held_out_is_the_one_asked_for() -> None:
    for holdout in (0.1, 0.4, 0.75):
        split = Split(holdout=holdout, seed=5)
        held = sum(is_holdout(a_case(f"case-{number}"), split) for number in range(20_000))
        assert held / 20_000 == pytest.approx(holdout, abs=0.015)  # more than 4 standard errors


def test_another_seed_is_another_split() -> None:
    ids = [f"case-{number}" for number in range(200)]
    one, other = (
        [is_holdout(a_case(case_id), Split(seed=seed)) for case_id in ids] for seed in (0, 1)
    )
    assert sum(a != b for a, b in zip(one, other, strict=True)) > 50


# --- size -----------------------------------------------------------------------------------------

STREAM = """
import json, sys, time
from pathlib import Path
from edison_ci.config.cases import CaseFeed
from edison_ci.config.experiment import DatasetEntry
from edison_ci.documents.files import WorkingTree

limits = {"max_rows": 1_000_000, "max_bytes": 1_000_000_000}
entry = DatasetEntry.model_validate({"path": sys.argv[2], "limits": limits})
feed = CaseFeed(WorkingTree(Path(sys.argv[1])), (entry,), {"n": "number"})

def peak():  # of this program: the kernel's figure for a process begins with that of its parent
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024

before, started = peak(), time.process_time()
count = sum(1 for _ in feed)
assert not feed.problems, feed.problems
print(json.dumps([count, peak() - before, (time.process_time() - started) / count * 1e6]))
"""


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "count", "head", "row"),
    [
        (
            "d.jsonl",
            100_000,
            "",
            '{{"id": "case-{0}", "input": {{"q": "What is the capital of country {0}?", "n": {0}}},'
            ' "expected": "City {0}", "tags": ["geo"], "difficulty": 3}}\n',
        ),
        ("d.csv", 50_000, "id,q,n,tags\n", 'case-{0},"What is ""{0}"", then?",{0},geo;x\n'),
        (
            "d.yaml",
            20_000,
            "",
            "- {{id: case-{0}, input: {{q: What is {0}?, n: {0}}}, tags: [a]}}\n",
        ),
    ],
)
def test_a_large_dataset_streams_in_bounded_memory(
    data: Data, name: str, count: int, head: str, row: str
) -> None:
    with (data.folder / name).open("w", encoding="utf-8") as stream:
        stream.write(head)
        stream.writelines(row.format(number) for number in range(count))
    done = subprocess.run(
        [sys.executable, "-c", STREAM, str(data.folder), name],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=PATIENCE_S,
        check=True,
    )
    read, grown_mb, microseconds = json.loads(done.stdout)
    assert read == count
    assert grown_mb < 10  # 11 to 73 if the cases are kept
    assert microseconds < (400 if name == "d.yaml" else 40) * slowness()


def test_one_file_may_be_listed_twice_for_different_cases(data: Data) -> None:
    data.write(
        "d.jsonl",
        {"id": "a", "input": {"x": "1"}, "tags": ["one"]},
        {"id": "b", "input": {"x": "2"}, "tags": ["two"]},
    )
    first, second = ({"path": "d.jsonl", "where": {"tags": tag}} for tag in ("one", "two"))
    assert data.ids(first, second) == ["a", "b"]
