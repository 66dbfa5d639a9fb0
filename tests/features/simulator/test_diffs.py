from __future__ import annotations

import re
import subprocess
from collections import Counter
from random import Random
from typing import TYPE_CHECKING

import pytest

from benchmarks.sim import NAMES
from edison_ci.features.simulator.judge import Criterion
from edison_ci.features.simulator.refiner import (
    Change,
    DiffFault,
    draw_diff_fault,
    faulty_diff,
    improve,
    parse_prompt,
    unified_diff,
)
from tests.features.simulator.conftest import example, variables_of

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.daily

PATH = "prompts/it.md"
SEEDS = range(20)
APPLIES = set(DiffFault) - {
    DiffFault.NOT_A_DIFF,
    DiffFault.WRONG_CONTEXT,
    DiffFault.WRONG_COUNTS,
    DiffFault.OTHER_FILE,
    DiffFault.TWO_FILES,
}
INVISIBLE = re.compile("[\u200b-\u200f\u2028-\u202f\u2060-\u2064\ufeff\U000e0000-\U000e007f]")


CHANGES = [
    ("a\nb", "a\nc"),
    ("a\nb", "a\nb\n"),
    ("a\n", "a\nb"),
    ("a\x0cb\u2028c\x85d\n", "a\x0cb\u2028e\x85d\n"),
    ("a\r\nb\r\n", "a\r\nc\r\n"),
]


def change_of(name: str, seed: int) -> Change:
    old = example(name).prompt
    return Change(PATH, old, improve(old, [Criterion("Empathy")], Random(seed)).text)


def applied(old: str, diff: str, folder: Path) -> str | None:
    """Return the text after `git apply`, or None if it refuses."""
    target = folder / PATH
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(old.encode())
    done = subprocess.run(
        ["git", "apply", "--whitespace=nowarn", "-"],
        cwd=folder,
        input=diff.encode(),
        capture_output=True,
        check=False,
    )
    return target.read_bytes().decode() if done.returncode == 0 else None


@pytest.mark.parametrize("name", NAMES)
def test_a_sound_diff_applies_to_exactly_the_new_text(name: str, tmp_path: Path) -> None:
    for seed in range(5):
        change = change_of(name, seed)
        diff = unified_diff(change.old, change.new, PATH)
        assert applied(change.old, diff, tmp_path) == change.new


@pytest.mark.parametrize(("old", "new"), CHANGES)
def test_ends_of_lines_and_files_are_kept(old: str, new: str, tmp_path: Path) -> None:
    assert applied(old, unified_diff(old, new, PATH), tmp_path) == new


def test_no_change_is_no_diff() -> None:
    assert unified_diff("a\n", "a\n", PATH) == ""


@pytest.mark.parametrize("kind", sorted(DiffFault))
def test_a_bad_diff_does_not_apply_or_changes_what_it_may_not(
    kind: DiffFault, tmp_path: Path
) -> None:
    for name in NAMES:
        change = change_of(name, 1)
        diff = faulty_diff(kind, change, Random(1))
        result = applied(change.old, diff, tmp_path)
        if kind in APPLIES:
            assert result is not None and result != change.old
        elif kind in (DiffFault.NOT_A_DIFF, DiffFault.WRONG_CONTEXT, DiffFault.WRONG_COUNTS):
            assert result is None


@pytest.mark.parametrize("name", NAMES)
def test_bad_diffs_are_bad_in_the_stated_way(name: str, tmp_path: Path) -> None:
    for seed in SEEDS:
        change = change_of(name, seed)
        diffs = {kind: faulty_diff(kind, change, Random(seed)) for kind in DiffFault}
        news = {kind: _new_text(change.old, diffs[kind]) for kind in APPLIES}
        old = parse_prompt(change.old)
        assert f"+++ b/{PATH}" not in diffs[DiffFault.OTHER_FILE]
        assert diffs[DiffFault.TWO_FILES].count("\n+++ ") == 2
        assert len(variables_of(news[DiffFault.DROPPED_VARIABLE])) < len(variables_of(change.old))
        assert news[DiffFault.TEMPLATE_LOGIC].count("{%") > change.old.count("{%")
        front = parse_prompt(news[DiffFault.FRONT_MATTER])
        assert front.lines[: front.body_start] != old.lines[: old.body_start]
        assert len(parse_prompt(news[DiffFault.HEADING]).headings) > len(old.headings)
        growth = len(news[DiffFault.TOO_LONG]) - len(change.old)
        assert growth > max(300, 0.15 * len(change.old))
        lines = news[DiffFault.TOO_MANY_LINES].count("\n") - change.old.count("\n")
        assert lines > max(4, 0.2 * change.old.count("\n"))
        assert INVISIBLE.search(news[DiffFault.INVISIBLE]) and not INVISIBLE.search(change.old)


def _new_text(old: str, diff: str) -> str:
    """Apply a sound diff by hand: its context and additions, where the hunks say."""
    result: list[str] = []
    source = old.split("\n")
    position = 0
    for hunk in re.split(r"(?m)^(?=@@ )", diff)[1:]:
        header, *body = hunk.rstrip("\n").split("\n")
        found = re.match(r"@@ -(\d+)", header)
        assert found
        start = int(found[1]) - 1
        result += source[position:start]
        position = start
        for line in body:
            if line.startswith("+"):
                result.append(line[1:])
            elif line.startswith((" ", "-")):
                assert source[position] == line[1:]
                result += [line[1:]] if line.startswith(" ") else []
                position += 1
    return "\n".join([*result, *source[position:]])


@pytest.mark.parametrize("rate", [0.0, 0.25, 1.0])
def test_bad_diffs_come_at_the_configured_rate(rate: float) -> None:
    kinds = [draw_diff_fault(Random(seed), rate) for seed in range(2_000)]
    bad = Counter(kind for kind in kinds if kind)
    assert sum(bad.values()) / len(kinds) == pytest.approx(rate, abs=0.03)
    assert rate < 1 or set(bad) == set(DiffFault)
