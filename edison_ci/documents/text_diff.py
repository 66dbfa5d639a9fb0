"""Unified diffs: made with bounded work, and those of exactly one file parsed and applied strictly.

The author of a diff may be careless or hostile, so nothing is guessed: only the expected file,
correct counts, context lines exactly where the diff places them, hunks in order without overlap.
Anything else is refused with a reason; reasons are sent back to the refiner, so changing their
wording changes its requests. Lines end with a line feed only, as in Git.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.documents.secrets import brief

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAX_DIFF = 100_000
"""Most characters of a diff."""
NO_NEWLINE = "\\ No newline at end of file"
_MAX_HUNKS = 100
_HUNK = re.compile(r"@@ -(\d{1,7})(?:,(\d{1,7}))? \+(\d{1,7})(?:,(\d{1,7}))? @@(?: .*)?\Z")
_GIT = re.compile(r"diff --git (\S+) (\S+)\Z")
_INDEX = re.compile(r"index [0-9a-f]{4,64}\.\.[0-9a-f]{4,64}(?: 100644)?\Z")
_FORBIDDEN = (
    (("rename ", "copy ", "similarity index", "dissimilarity index"), "renames or copies a file"),
    (("old mode", "new mode"), "changes the mode of a file"),
    (("new file mode",), "makes a new file"),
    (("deleted file mode",), "deletes the file"),
    (("GIT binary patch", "Binary files"), "is binary"),
)
_FILE_HEADERS = ("diff ", "--- ", "+++ ", "Index: ", "*** ")


class PatchRefused(Exception):
    """A diff that cannot be applied, with the reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Line(NamedTuple):
    """A line of a hunk."""

    sign: str
    """A space for context, + or -."""
    text: str
    ends: bool = True
    """Whether it ends with a line feed."""


@dataclass(frozen=True, slots=True)
class Hunk:
    """One hunk of a diff."""

    old_start: int
    new_start: int
    lines: tuple[Line, ...]

    @property
    def old(self) -> list[Line]:
        """The lines before the change."""
        return [line for line in self.lines if line.sign != "+"]

    @property
    def new(self) -> list[Line]:
        """The lines after the change."""
        return [line for line in self.lines if line.sign != "-"]


@dataclass(frozen=True, slots=True)
class Patch:
    """A parsed and consistent diff of one file."""

    path: str
    hunks: tuple[Hunk, ...]

    @property
    def added(self) -> tuple[str, ...]:
        """The added lines."""
        return self._signed("+")

    @property
    def removed(self) -> tuple[str, ...]:
        """The removed lines."""
        return self._signed("-")

    @property
    def longest_removal(self) -> int:
        """Number of lines in the longest run of removed lines."""
        longest = run = last = 0
        for hunk in self.hunks:
            for number, line in enumerate(hunk.old, hunk.old_start):
                if line.sign == "-":
                    run = run + 1 if number == last + 1 else 1
                    longest, last = max(longest, run), number
        return longest

    def _signed(self, sign: str) -> tuple[str, ...]:
        return tuple(line.text for hunk in self.hunks for line in hunk.lines if line.sign == sign)

    def __str__(self) -> str:
        """The diff as Git writes it."""
        lines = [f"--- a/{self.path}", f"+++ b/{self.path}"]
        for hunk in self.hunks:
            old, new = _span(hunk.old_start, len(hunk.old)), _span(hunk.new_start, len(hunk.new))
            lines.append(f"@@ -{old} +{new} @@")
            for line in hunk.lines:
                lines.append(f"{line.sign}{line.text}")
                lines += [] if line.ends else [NO_NEWLINE]
        return "\n".join(lines) + "\n"


def _span(start: int, count: int) -> str:
    return str(start) if count == 1 else f"{start},{count}"


def parse_patch(diff: str, path: str) -> Patch:
    """Return the diff of the file at `path`; raises PatchRefused."""
    if not diff.strip():
        raise PatchRefused("the diff is empty")
    if len(diff) > MAX_DIFF:
        raise PatchRefused(f"the diff has {len(diff):,} characters; at most {MAX_DIFF:,}")
    if "\r" in diff:
        raise PatchRefused("the diff has carriage returns (Windows line ends); use line feeds only")
    if "\0" in diff:
        raise PatchRefused("the diff is binary: it holds a zero byte")
    if not diff.endswith("\n"):
        raise PatchRefused("the last line of the diff has no line end, so it may be cut off")
    lines = diff.split("\n")[:-1]
    start = _read_headers(lines, path)
    hunks = tuple(_read_hunks(lines, start, path))
    _check_order(hunks)
    return Patch(path, hunks)


def _read_headers(lines: Sequence[str], path: str) -> int:
    """Check that the headers name only this file; return the index of the first hunk."""
    seen: list[str] = []
    for number, line in enumerate(lines, 1):
        if line.startswith("@@"):
            break
        _refuse_forbidden(line)
        if match := _GIT.match(line):
            if seen:
                raise PatchRefused(f"line {number} starts a second file")
            _require_path(match[1], "a", path)
            _require_path(match[2], "b", path)
            seen.append("git")
        elif line.startswith(("--- ", "+++ ")):
            sign = line[:3]
            if sign in seen or (sign == "+++" and "---" not in seen):
                raise PatchRefused(f"line {number} starts a second file")
            _require_path(line[4:], "a" if sign == "---" else "b", path)
            seen.append(sign)
        elif not (seen == ["git"] and _INDEX.match(line)):
            raise PatchRefused(
                f"line {number} is not a header of a unified diff: {brief(line)}; "
                f"the first lines are --- a/{path} and +++ b/{path}"
            )
    else:
        raise PatchRefused("the diff changes nothing: it has no line that starts with @@")
    if seen[-2:] != ["---", "+++"]:
        raise PatchRefused(f"the lines --- a/{path} and +++ b/{path} are not before the first @@")
    return number - 1


def _refuse_forbidden(line: str) -> None:
    for starts, what in _FORBIDDEN:
        if line.startswith(starts):
            raise PatchRefused(f"the diff {what}; only the text of the prompt may change")


def _require_path(written: str, side: str, path: str) -> None:
    if written == "/dev/null":
        what = "makes a new file" if side == "a" else "deletes the file"
        raise PatchRefused(f"the diff {what}; only the text of the prompt may change")
    if written not in (path, f"{side}/{path}"):
        raise PatchRefused(f"the diff changes {brief(written)}; the only file to change is {path}")


def _read_hunks(lines: Sequence[str], start: int, path: str) -> Iterator[Hunk]:
    at, number = start, 0
    while at < len(lines):
        number += 1
        if number > _MAX_HUNKS:
            raise PatchRefused(f"the diff has more than {_MAX_HUNKS} hunks")
        header = _HUNK.match(lines[at])
        if header is None:
            raise _not_a_hunk(lines[at], at + 1, number - 1, path)
        counts = [
            1 if number_text is None else int(number_text) for number_text in (header[2], header[4])
        ]
        body, at = _read_body(lines, at + 1, number, counts)
        yield _sound(Hunk(int(header[1]), int(header[3]), tuple(body)), number)


def _not_a_hunk(line: str, number: int, hunk: int, path: str) -> PatchRefused:
    _refuse_forbidden(line)
    if line.startswith(_FILE_HEADERS):
        return PatchRefused(
            f"line {number} starts a second file, or hunk {hunk} has more lines than its @@ line "
            f"says; the only file to change is {path}"
        )
    if line.startswith("@@"):
        return PatchRefused(f"line {number} is not a valid @@ -a,b +c,d @@ line: {brief(line)}")
    if line == NO_NEWLINE or line[:1] in (" ", "+", "-", ""):
        return PatchRefused(f"hunk {hunk} has more lines than its @@ line says (line {number})")
    return PatchRefused(f"line {number} is not a line of a diff: {brief(line)}")


def _read_body(
    lines: Sequence[str], at: int, number: int, counts: list[int]
) -> tuple[list[Line], int]:
    """Return the lines that the header of a hunk promises, and the index after them."""
    body: list[Line] = []
    old, new = counts
    while old or new:
        if at == len(lines) or lines[at].startswith("@@"):
            raise PatchRefused(
                f"hunk {number} has fewer lines than its @@ line says: "
                f"{old} of the old and {new} of the new are missing"
            )
        line = lines[at]
        # Like Git, treat an empty line as an empty context line.
        sign, text = (line[0], line[1:]) if line else (" ", "")
        if line == NO_NEWLINE:
            _end_without_newline(body, number)
        elif sign not in " +-":
            raise PatchRefused(
                f"a line of hunk {number} starts with neither a blank nor + nor -: {brief(line)}"
            )
        else:
            old, new = old - (sign != "+"), new - (sign != "-")
            if old < 0 or new < 0:
                kind = "old" if old < 0 else "new"
                raise PatchRefused(f"hunk {number} has more {kind} lines than its @@ line says")
            body.append(Line(sign, text))
        at += 1
    if at < len(lines) and lines[at] == NO_NEWLINE:
        _end_without_newline(body, number)
        at += 1
    return body, at


def _end_without_newline(body: list[Line], number: int) -> None:
    if not body or not body[-1].ends:
        raise PatchRefused(f"hunk {number} says twice that the file has no newline at its end")
    body[-1] = body[-1]._replace(ends=False)


def _sound(hunk: Hunk, number: int) -> Hunk:
    if not any(line.sign != " " for line in hunk.lines):
        raise PatchRefused(f"hunk {number} changes nothing")
    if not hunk.old:
        raise PatchRefused(
            f"hunk {number} shows no line of the prompt: a change needs a line of context"
        )
    if not hunk.old_start or not hunk.new_start:
        raise PatchRefused(f"hunk {number} starts at line 0; lines count from 1")
    for side in (hunk.old, hunk.new):
        if any(not line.ends for line in side[:-1]):
            raise PatchRefused(f"hunk {number} has lines after the end of the file")
    return hunk


def _check_order(hunks: Sequence[Hunk]) -> None:
    end = shift = 0
    for number, hunk in enumerate(hunks, 1):
        if hunk.old_start <= end:
            raise PatchRefused(
                f"hunk {number} starts at line {hunk.old_start}, but hunk {number - 1} reaches "
                f"line {end}: hunks are in order and do not overlap"
            )
        if hunk.new and hunk.new_start != hunk.old_start + shift:
            raise PatchRefused(
                f"hunk {number} says that it lands on line {hunk.new_start}; with the hunks before "
                f"it that is line {hunk.old_start + shift}"
            )
        end = hunk.old_start + len(hunk.old) - 1
        shift += len(hunk.new) - len(hunk.old)


def apply_patch(text: str, patch: Patch) -> str:
    """Return the text after the diff; raises PatchRefused unless it fits exactly."""
    lines, whole = text.split("\n"), text.endswith("\n")
    if whole:
        lines.pop()
    after: list[str] = []
    at = 0
    for number, hunk in enumerate(patch.hunks, 1):
        start, stop = hunk.old_start - 1, hunk.old_start - 1 + len(hunk.old)
        _require_context(lines, hunk, number)
        after += lines[at:start]
        after += [line.text for line in hunk.new]
        _require_same_end(hunk, number, last=stop == len(lines), whole=whole)
        at = stop
    after += lines[at:]
    return "\n".join(after) + ("\n" if whole and after else "")


def _require_context(lines: Sequence[str], hunk: Hunk, number: int) -> None:
    for place, line in enumerate(hunk.old, hunk.old_start):
        if place > len(lines):
            raise PatchRefused(
                f"hunk {number} wants a line {place}; the prompt has {len(lines)} lines"
            )
        if lines[place - 1] != line.text:
            elsewhere = [n for n, other in enumerate(lines, 1) if other == line.text and other]
            hint = f"; that text is line {elsewhere[0]}" if len(elsewhere) == 1 else ""
            raise PatchRefused(
                f"hunk {number} says that line {place} of the prompt is {brief(line.text)}, "
                f"but it is {brief(lines[place - 1])}{hint}"
            )


def _require_same_end(hunk: Hunk, number: int, *, last: bool, whole: bool) -> None:
    """Refuse a hunk that misstates or changes the newline at the end of the file."""
    ends = [side[-1].ends for side in (hunk.old, hunk.new) if side]
    if not last:
        if not all(ends):
            raise PatchRefused(f"hunk {number} says that the file ends there, and it does not")
    elif not all(end == whole for end in ends):
        ending = "has a newline" if whole else "has no newline"
        raise PatchRefused(
            f"the prompt {ending} at its end, and hunk {number} would change that or does not "
            "know it"
        )


def diff_of(path: str, before: str, after: str) -> str:
    """Return the unified diff between two texts of a file; empty if there is none."""
    if after and not after.endswith("\n") and before.endswith("\n"):
        after += "\n"  # editors differ about the final newline
    lines = unified_diff(
        before.split("\n")[:-1] if before.endswith("\n") else before.split("\n"),
        after.split("\n")[:-1] if after.endswith("\n") else after.split("\n"),
        f"a/{path}",
        f"b/{path}",
    )
    text = "\n".join(lines)
    return f"{text}\n" if text else ""


# The time of `difflib` grows with the cube of the length where lines repeat, and both texts may be
# written to make it so. Here lines that repeat too often are not used as anchors; they are only
# matched next to others. If even that would take too long, all old lines are replaced by all new
# lines.
_MOST_STEPS = 3_000_000
"""A few tenths of a second."""


def matcher(old: Sequence[str], new: Sequence[str]) -> difflib.SequenceMatcher[str]:
    """Return a matcher whose work is bounded."""
    shorter = min(len(old), len(new))
    left = _MOST_STEPS // max(shorter, 1) - len(old)
    if left < 0:
        return difflib.SequenceMatcher(lambda _: True, old, new, autojunk=False)
    counts, others = Counter(old), Counter(new)
    pairs = {line: number * others[line] for line, number in counts.items() if line in others}
    common: set[str] = set()
    if sum(pairs.values()) > left:
        for line in sorted(pairs, key=pairs.__getitem__):
            left -= pairs[line]
            if left < 0:
                common.add(line)
    return difflib.SequenceMatcher(common.__contains__, old, new, autojunk=False)


def unified_diff(
    old: Sequence[str], new: Sequence[str], old_name: str, new_name: str, *, end: str = ""
) -> Iterator[str]:
    """Yield the lines of a unified diff; `end` is appended to the header lines."""
    started = False
    for group in matcher(old, new).get_grouped_opcodes(3):
        if not started:
            started = True
            yield f"--- {old_name}{end}"
            yield f"+++ {new_name}{end}"
        first, last = group[0], group[-1]
        spans = _range(first[1], last[2]), _range(first[3], last[4])
        yield f"@@ -{spans[0]} +{spans[1]} @@{end}"
        for tag, a1, a2, b1, b2 in group:
            if tag == "equal":
                yield from (f" {line}" for line in old[a1:a2])
                continue
            yield from (f"-{line}" for line in old[a1:a2])
            yield from (f"+{line}" for line in new[b1:b2])


def _range(start: int, stop: int) -> str:
    """Return a line range as a unified diff writes it; an empty one names the line before it."""
    length = stop - start
    if length == 1:
        return str(start + 1)
    return f"{start + 1 if length else start},{length}"
