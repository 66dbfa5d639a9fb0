"""Details of a pull request beside the results: the diff of the prompts, and some cases.

Answers and reasons are shown to everyone who can read the pull request. So a private project shows
none, and neither does a case in whose texts the screens for personal data and secrets find
something, also one that the experiment does not screen for.
"""

from __future__ import annotations

import textwrap
from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.documents import secrets as document_secrets
from edison_ci.documents import text_diff
from edison_ci.numeric import score
from edison_ci.records import Move
from edison_ci.report import markdown
from edison_ci.safety import screen as safety_screen
from edison_ci.sanitize import line, lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from edison_ci.results.run_result import RunResult
    from edison_ci.results.triage import ChangedCase, ShownAnswer

TELLING = 3
"""Cases that are shown with their answers."""
MOST_QUOTED = 300
"""Characters of an answer, or of a reason."""
_MOST_DIFF = 6_000
_MOST_DIFF_LINES = 60
_MOST_DIFFS = 4
_WIDEST = 300
_WIDTH = 84
"""Characters of a line that a comment shows without scrolling."""
CANDIDATES = 3 * TELLING
"""Cases to choose from, as the texts of some may not be shown."""


class FileDiff(NamedTuple):
    """The change of a file since the base."""

    path: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class ChangeDetails:
    """The changed prompts of a pull request, and the cases that show most of the change."""

    diffs: tuple[FileDiff, ...] = ()
    cases: Mapping[str, tuple[ChangedCase, ...]] = field(default_factory=dict)
    """By run, the most informative first; without cases for a private project."""


class _AllPersonalData:
    names_by = None

    def action_of(self, kind: str) -> safety_screen.Action:
        """Return the action for a kind; places and persons need a pipeline, which is not used."""
        return "flag"

    def redacted_kinds(self) -> frozenset[str]:
        """Return no kind."""
        return frozenset()


class _Actions(NamedTuple):
    pii: _AllPersonalData = _AllPersonalData()
    jailbreak: safety_screen.Action = "off"
    secrets: safety_screen.Action = "flag"


def may_quote(texts: Sequence[str | None]) -> bool:
    """Whether the screens find no personal data and no secret in texts."""
    stored = [text for text in texts if text]
    clean = all(document_secrets.redacted(text) == text for text in stored)
    return clean and all(safety_screen.screen(text, _Actions()).status == "ok" for text in stored)


def diff_paragraphs(details: ChangeDetails) -> Iterator[str]:
    """Yield the diff of each changed prompt, cut to a length."""
    for change in details.diffs[:_MOST_DIFFS]:
        diff = markdown.fenced(_diff(change), most=_MOST_DIFF, language="diff")
        yield f"{markdown.code(change.path)}\n\n{diff}"
    left = [change.path for change in details.diffs[_MOST_DIFFS:]]
    if left:
        yield f"Also changed: {', '.join(map(markdown.code, left))}."


def _diff(change: FileDiff) -> str:
    diff_lines = text_diff.unified_diff(
        change.before.splitlines(), change.after.splitlines(), "", ""
    )
    rows = [
        markdown.shortened(row, _WIDEST) for row in list(diff_lines)[2:]
    ]  # the names are above it
    left = len(rows) - _MOST_DIFF_LINES
    return "\n".join(
        [*rows[:_MOST_DIFF_LINES], *([f"... {left:,} more lines"] if left > 0 else [])]
    )


class TellingCase(NamedTuple):
    """A case to show, and the run that it is of."""

    view: RunResult
    case: ChangedCase

    @property
    def shown(self) -> bool:
        """Whether the screens let its texts be shown."""
        flagged = {(finding.case, finding.kind) for finding in self.view.findings}
        if flagged & {(self.case.case, "pii"), (self.case.case, "secrets")}:
            return False
        return may_quote([text for side in self.case[-2:] for text in (side.text, side.why)])


def telling_cases(details: ChangeDetails, runs: Sequence[RunResult]) -> list[TellingCase]:
    """Return the most informative cases of all runs: newly failing first, then fixed, then scores.

    Among cases that changed alike, those come first whose texts can be shown.
    """
    cases = details.cases
    telling = [TellingCase(view, case) for view in runs for case in cases.get(view.run.id, ())]
    telling.sort(key=lambda pick: ([*Move].index(pick.case.move), not pick.shown))
    # One case often changes with several models alike.
    first = {(pick.view.run.id, pick.case.case): pick for pick in reversed(telling)}
    return [pick for pick in telling if pick in first.values()][:TELLING]


def case_paragraphs(telling: TellingCase, *, several: bool) -> Iterator[str]:
    """Yield a case with its scores and why it changed, then its answers as lines of a diff."""
    case, before, after = telling.case, telling.case.before, telling.case.after
    of = f"{markdown.code(telling.view.run.experiment)}, " if several else ""
    scores = f"{score(before.composite)} to {score(after.composite)}"
    move = case.move.words.capitalize()
    lead = f"**{move}** {of}{markdown.code(case.case)} with {markdown.code(case.model)}: {scores}"
    if not telling.shown:
        yield f"{lead}. The texts are not shown: they may contain personal data or a secret."
        return
    worse = before if case.move.better else after
    why = (
        f"; {markdown.code(markdown.shortened(line(worse.why), MOST_QUOTED), most=MOST_QUOTED)}"
        if worse.why
        else ""
    )
    yield f"{lead}{why}"
    rows = [*_quoted("-", before), *_quoted("+", after)]
    yield markdown.fenced("\n".join(rows), most=_MOST_DIFF, language="diff")


def _quoted(sign: str, side: ShownAnswer) -> Iterator[str]:
    """Yield the beginning of an answer as lines of a diff, so that none can be taken for ours.

    Blank lines are left out, and long lines are wrapped.
    """
    if side.text is None:
        yield f"{sign} (not stored)"
        return
    text = markdown.shortened(lines(side.text.strip()), MOST_QUOTED) or "(empty)"
    for row in text.splitlines():
        for piece in textwrap.wrap(row, _WIDTH, break_on_hyphens=False):
            yield f"{sign} {piece}"
