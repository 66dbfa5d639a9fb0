"""A diff is applied exactly or refused with a reason, whoever wrote it."""

from __future__ import annotations

import random
import subprocess
from typing import TYPE_CHECKING

import pytest

from edison_ci.documents.text_diff import MAX_DIFF, PatchRefused, apply_patch, parse_patch
from edison_ci.features.simulator.refiner import unified_diff

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.daily

PATH = "prompts/reply.md"
TEXT = (
    "---\nid: reply\n---\n# system\nYou answer e-mails.\n\n"
    "# user\nWrite a reply.\n\n{{ message }}\n"
)
HEAD = f"--- a/{PATH}\n+++ b/{PATH}\n"
GOOD = HEAD + "@@ -7,3 +7,4 @@\n # user\n Write a reply.\n+Be brief.\n \n"


def applied(diff: str, text: str = TEXT) -> str:
    return apply_patch(text, parse_patch(diff, PATH))


def reason(diff: str, text: str = TEXT) -> str:
    with pytest.raises(PatchRefused) as refused:
        applied(diff, text)
    return refused.value.reason


def test_a_sound_diff_is_applied() -> None:
    assert applied(GOOD) == TEXT.replace("Write a reply.\n", "Write a reply.\nBe brief.\n")


def test_headers_of_git_and_paths_without_prefix_are_understood() -> None:
    git = f"diff --git a/{PATH} b/{PATH}\nindex 0123abc..4567def 100644\n"
    assert applied(git + GOOD) == applied(GOOD)
    assert applied(GOOD.replace("a/prompts", "prompts").replace("b/prompts", "prompts"))


def test_an_empty_line_stands_for_an_empty_line_of_context() -> None:
    assert applied(GOOD.removesuffix(" \n") + "\n") == applied(GOOD)


def test_what_is_written_down_is_what_is_applied() -> None:
    patch = parse_patch(f"diff --git a/{PATH} b/{PATH}\n{GOOD}", PATH)
    assert str(patch) == GOOD
    assert (patch.added, patch.removed, patch.longest_removal) == (("Be brief.",), (), 0)


def test_lines_removed_in_a_row_are_counted_across_hunks() -> None:
    text = "".join(f"{n}\n" for n in range(1, 11))
    diff = HEAD + "@@ -1,3 +1 @@\n 1\n-2\n-3\n@@ -4,3 +2,2 @@\n-4\n+x\n-5\n 6\n"
    patch = parse_patch(diff, PATH)
    assert patch.longest_removal == 4
    assert apply_patch(text, patch) == "1\nx\n6\n7\n8\n9\n10\n"


BAD = {
    "empty": ("  \n", "empty"),
    "no diff": ("Just be nicer.\n", "not a header of a unified diff"),
    "prose before": (f"Here it is:\n{GOOD}", "line 1 is not a header"),
    "prose after": (f"{GOOD}Hope this helps!\n", "not a line of a diff"),
    "wrong context": (GOOD.replace(" Write a", " Write the"), "line 8 of the prompt is"),
    "wrong place": (GOOD.replace("-7,3 +7,4", "-6,3 +6,4"), "that text is line 7"),
    "beyond the end": (GOOD.replace("-7,3 +7,4", "-70,3 +70,4"), "the prompt has 10 lines"),
    "too few lines": (GOOD.replace("-7,3 +7,4", "-7,4 +7,5"), "fewer lines than its @@ line"),
    "too many lines": (GOOD.replace("-7,3 +7,4", "-7,2 +7,3"), "more lines than its @@ line"),
    "too many new": (GOOD.replace("+7,4", "+7,3"), "more new lines than its @@ line"),
    "too many old": (GOOD.replace("-7,3", "-7,2"), "more old lines than its @@ line"),
    "lands elsewhere": (GOOD.replace("+7,4", "+9,4"), "lands on line 9"),
    "line 0": (GOOD.replace("-7,3", "-0,3"), "lines count from 1"),
    "no context": (HEAD + "@@ -7,0 +8,1 @@\n+Be brief.\n", "needs a line of context"),
    "no change": (HEAD + "@@ -7,1 +7,1 @@\n # user\n", "changes nothing"),
    "no hunk": (HEAD, "changes nothing"),
    "odd hunk": (HEAD + "@@ somewhere @@\n # user\n", "not a valid @@"),
    "odd line": (GOOD.replace("+Be", "Be"), "starts with neither"),
    "huge numbers": (GOOD.replace("-7,3", f"-{10**30},3"), "not a valid @@"),
    "other file": (GOOD.replace("reply.md", "other.md"), "the only file to change is"),
    "outside": (GOOD.replace(PATH, "../../etc/passwd"), "the only file to change is"),
    "one side elsewhere": (GOOD.replace(f"b/{PATH}", "b/edison.yaml"), "changes 'b/edison.yaml'"),
    "second file": (
        GOOD + "--- a/edison.yaml\n+++ b/edison.yaml\n@@ -1 +1 @@\n-a\n+b\n",
        "starts a second file",
    ),
    "second file by git": (
        GOOD + "diff --git a/edison.yaml b/edison.yaml\nold mode 100644\nnew mode 100755\n",
        "starts a second file",
    ),
    "the file twice": (GOOD + GOOD, "starts a second file"),
    "headers twice": (HEAD + GOOD, "starts a second file"),
    "new file": (GOOD.replace(f"a/{PATH}", "/dev/null"), "makes a new file"),
    "deleted": (GOOD.replace(f"b/{PATH}", "/dev/null"), "deletes the file"),
    "rename": (
        f"diff --git a/{PATH} b/prompts/x.md\nrename from {PATH}\nrename to prompts/x.md\n",
        "the only file to change is",
    ),
    "rename of itself": (
        f"diff --git a/{PATH} b/{PATH}\nsimilarity index 90%\nrename from {PATH}\n{GOOD}",
        "renames or copies",
    ),
    "mode": (
        f"diff --git a/{PATH} b/{PATH}\nold mode 100644\nnew mode 100755\n{GOOD}",
        "changes the mode",
    ),
    "binary": (
        f"diff --git a/{PATH} b/{PATH}\nGIT binary patch\nliteral 3\nKcmZ\n",
        "is binary",
    ),
    "zero byte": (GOOD.replace("brief", "br\0ief"), "is binary"),
    "carriage returns": (GOOD.replace("\n", "\r\n"), "carriage returns"),
    "no line end": (GOOD.rstrip("\n"), "no line end"),
    "takes the last newline": (
        HEAD + "@@ -10 +10 @@\n-{{ message }}\n+{{ message }}\n\\ No newline at end of file\n",
        "newline at its end",
    ),
    "ends in the middle": (
        GOOD.replace("+Be brief.\n", "+Be brief.\n\\ No newline at end of file\n"),
        "lines after the end",
    ),
    "claims the end": (
        HEAD + "@@ -7,2 +7,2 @@\n # user\n-Write a reply.\n\\ No newline at end of file\n+Reply.\n",
        "says that the file ends there",
    ),
    "no newline twice": (
        GOOD + "\\ No newline at end of file\n\\ No newline at end of file\n",
        "more lines than its @@ line",
    ),
    "overlapping": (
        HEAD + "@@ -7,2 +7,3 @@\n # user\n Write a reply.\n+A.\n@@ -8,2 +9,3 @@\n Write a reply.\n"
        "+B.\n \n",
        "do not overlap",
    ),
    "out of order": (
        HEAD + "@@ -7,1 +7,2 @@\n # user\n+A.\n@@ -4,1 +5,2 @@\n # system\n+B.\n",
        "hunks are in order",
    ),
    "5 MB": (GOOD + "+" * 5_000_000 + "\n", f"at most {MAX_DIFF:,}"),
    "a hundred hunks": (
        HEAD + "".join(f"@@ -{n} +{n} @@\n-a\n+b\n" for n in range(1, 120)),
        "more than 100 hunks",
    ),
}


def test_a_broken_or_hostile_diff_is_refused_with_a_reason(subtests: pytest.Subtests) -> None:
    for name, (diff, expected) in BAD.items():
        with subtests.test(name):
            assert expected in reason(diff)


def test_a_reason_names_no_secret_and_stays_short() -> None:
    told = reason(GOOD.replace(" Write a reply.", " sk-ant-" + "a1" * 200))
    assert "a1a1a1a1" not in told
    assert len(told) < 400


def test_a_file_without_a_newline_at_its_end_keeps_it_so() -> None:
    text = TEXT.rstrip("\n")
    diff = (
        HEAD + "@@ -9,2 +9,3 @@\n \n-{{ message }}\n\\ No newline at end of file\n"
        "+{{ message }}\n+Bye.\n\\ No newline at end of file\n"
    )
    assert applied(diff, text) == f"{text}\nBye."
    assert "would change that" in reason(
        diff.replace("Bye.\n\\ No newline at end of file", "Bye."), text
    )


def test_any_sound_diff_gives_what_git_gives(tmp_path: Path) -> None:
    rng = random.Random(7)
    file = tmp_path / PATH
    file.parent.mkdir()
    for _ in range(12):
        before = _lines(rng)
        after = [line for line in before if rng.random() > 0.2]
        for _ in range(rng.randint(1, 4)):
            after.insert(rng.randint(0, len(after)), rng.choice("abcdef") * 3)
        old, new = "\n".join(before) + "\n", "\n".join(after) + "\n"
        diff = unified_diff(old, new, PATH)
        assert applied(diff, old) == new
        file.write_text(old)
        written = str(parse_patch(diff, PATH)).encode()
        subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=written, check=True)
        assert file.read_text() == new


def _lines(rng: random.Random) -> list[str]:
    return [rng.choice(["a", "b", "", "# user", "-- x", "++ y"]) for _ in range(rng.randint(8, 40))]


def test_no_damage_to_a_sound_diff_raises_anything_else() -> None:
    rng = random.Random(3)
    for _ in range(3_000):
        damaged = list(GOOD)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(damaged))
            damaged[at] = rng.choice(["", "\n", "+", "-", " ", "@", "\\", "9", damaged[at] * 2])
        try:
            applied("".join(damaged))
        except PatchRefused as refused:
            assert refused.reason
