"""Which change of a prompt fixed or broke which cases."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.execute.hunks import hunks_of, without

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

CASES = 4


@pytest.fixture
def changed(mini: Folder, edison: Edison) -> Folder:
    """A run against a base, with a harmless change and one that loses the name."""
    rows = ({"id": f"c{i}", "input": {"name": f"P{i}"}, "expected": f"P{i}"} for i in range(CASES))
    mini.write("datasets/names.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    mini.edit("models.yaml", "model: small}", "model: echo}")
    mini.edit("experiments/hello.yaml", "rubric: rubrics/tone.yaml\n", "")
    mini.edit("experiments/hello.yaml", "judges: {pointwise: [judge]}\n", "")
    mini.write(".gitignore", ".edison/\n")
    mini.git("init", "--quiet", "--initial-branch=main")
    mini.git("add", "--all")
    mini.git("-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "--quiet", "-m", "start")
    mini.edit("prompts/hello.md", "# user\n", "# system\nBe kind.\n\n# user\n")
    mini.edit("prompts/hello.md", "hello to {{ name }}", "hello to {{ name | lower }}")
    edison(mini, "run", "-q", "--against", "main")
    return mini


def blamed(edison: Edison, folder: Folder, *more: str) -> dict[str, Any]:
    done = edison(folder, "compare", "--by-hunk", "--json", *more)
    found: dict[str, Any] = json.loads(done.out)
    return found


def test_a_hunk_is_taken_back_alone() -> None:
    before, after = "a\nb\nc\nd\n", "a\nB\nc\nd\ne\n"
    first, second = hunks_of(before, after)
    assert (first.removed, first.added, first.title) == (("b",), ("B",), "line 2")
    assert without(after, first) == "a\nb\nc\nd\ne\n"
    assert without(after, second) == "a\nB\nc\nd\n"


def test_every_line_of_a_block_is_a_hunk_with_what_continues_it() -> None:
    before = "a\nx\ny\nz\n"
    added = hunks_of(before, "a\n- one\n  more\n\n- two\nx\ny\nz\n")
    assert [hunk.added for hunk in added] == [("- one", "  more", ""), ("- two",)]
    assert [hunk.removed for hunk in hunks_of(before, "a\nz\n")] == [("x",), ("y",)]
    rewritten = hunks_of(before, "a\nX\nY\nz\n")
    assert [(hunk.removed, hunk.added) for hunk in rewritten] == [
        (("x",), ("X",)),
        (("y",), ("Y",)),
    ]
    (whole,) = hunks_of(before, "a\n1\n2\n3\nz\n")
    assert (whole.removed, whole.added) == (("x", "y"), ("1", "2", "3"))
    (section,) = hunks_of(before, "a\n# system\nBe kind.\nx\ny\nz\n")
    assert section.added == ("# system", "Be kind.")


def test_the_change_that_broke_cases_is_named(edison: Edison, changed: Folder) -> None:
    (found,) = blamed(edison, changed)["prompts"]
    kind, lower = found["hunks"]
    assert (kind["added"][:2], kind["newly_failing"]) == (["# system", "Be kind."], [])
    assert "{{ name | lower }}" in lower["added"][0]
    assert [one["case"] for one in lower["newly_failing"]] == [f"c{i}" for i in range(CASES)]
    assert (found["together"]["newly_failing"], found["problem"]) == ([], None)
    assert found["calls"] == 2 * CASES
    (again,) = blamed(edison, changed)["prompts"]
    assert (again["calls"], again["hunks"]) == (0, found["hunks"]), "answers are stored"
    shown = edison(changed, "compare", "--by-hunk")
    assert "breaks 4: c0@small, c1@small, c2@small, c3@small" in shown.out
    assert "no case flips because of it alone" in shown.out
    assert (
        "4 flips asked again with one of 2 hunks taken out at a time: at most 8 answers"
        in shown.err
    )


def test_a_prompt_that_changed_since_and_a_run_without_a_base_are_refused(
    edison: Edison, changed: Folder
) -> None:
    changed.edit("prompts/hello.md", "Be kind.", "Be brief.")
    done = edison(changed, "compare", "--by-hunk")
    assert (done.code, "has changed since run" in done.err) == (2, True)
    edison(changed, "run", "-q")
    done = edison(changed, "compare", "--by-hunk")
    assert (done.code, "has no base to compare with" in done.err) == (2, True)
    done = edison(changed, "compare", "--by-hunk", "--gates")
    assert (done.code, "--by-hunk takes one RUN" in done.err) == (2, True)


def test_a_budget_ends_the_search_and_says_so(edison: Edison, changed: Folder) -> None:
    changed.edit(
        "models.yaml",
        "model: echo}",
        "model: echo, price: {in: 1, out: 1}, params: {max_tokens: 50}}",
    )
    edison(changed, "run", "-q", "--against", "main")
    done = edison(changed, "compare", "--by-hunk", "--budget", "0.0001", "--json")
    (found,) = json.loads(done.out)["prompts"]
    assert (done.code, found["problem"]) == (4, "--budget has no room for it")
    asked = sum(len(one["newly_failing"]) for one in found["hunks"])
    assert 0 < len(found["unknown"]["newly_failing"]) == CASES - asked
