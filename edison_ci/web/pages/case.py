"""The page of a case: what each model answered, side by side."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from edison_ci._dataclass import dataclass
from edison_ci.documents.secrets import redacted
from edison_ci.errors import UsageError
from edison_ci.names import matcher
from edison_ci.report.markup import Html, element, joined
from edison_ci.results.case_answers import CaseAnswer, answers_to, case_kind, neighbouring_cases
from edison_ci.results.explanation import Explained, explain
from edison_ci.results.run_result import labels_of
from edison_ci.store.cells import find_cell
from edison_ci.web.own_grade import Own, own_of
from edison_ci.web.page_context import Crumb, Look, Page, run_named
from edison_ci.web.pages.cell import SHOWN_ID
from edison_ci.web.pages.run import crumbs_of
from edison_ci.web.workspace import project_of, searchable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edison_ci.store.runs import Run


_WORDS = re.compile(r"(\S+)(\s*)")
MOST_WORDS = 3_000
"""Comparing takes time that grows with the square of a text's length."""


def word_diff(before: str, after: str) -> Html | None:
    """Return the later text with what was added and taken away; None if one is too long.

    Blanks are those of the later text: nobody asks how they changed.
    """
    old, new = _WORDS.findall(before), _WORDS.findall(after)
    if max(len(old), len(new)) > MOST_WORDS:
        return None
    return joined(_pieces(old, new))


def _pieces(old: list[tuple[str, str]], new: list[tuple[str, str]]) -> Iterator[Html | str]:
    words = [word for word, _ in old], [word for word, _ in new]
    for tag, i1, i2, j1, j2 in matcher(*words).get_opcodes():
        gone, come = _text(old[i1:i2]), _text(new[j1:j2])
        if tag == "equal":
            yield come
            continue
        if gone.strip():
            yield element("del", gone.rstrip())
            yield " "
        if come.strip():
            yield element("ins", come.rstrip())
        yield come[len(come.rstrip()) :]


def _text(words: list[tuple[str, str]]) -> str:
    return "".join(word + blank for word, blank in words)


MOST = 4
"""Answers beside each other."""


@dataclass(frozen=True, slots=True)
class Beside:
    """An answer that is shown beside others."""

    about: CaseAnswer
    known: Explained
    text: str
    changes: Html | None
    """In which words it differs from the first; None for the first, or if nobody asked."""
    own: Own | None
    """What whoever looks may say of it."""

    @property
    def flagged(self) -> bool:
        """Whether somebody wants a second look at it."""
        return any(one.flagged for one in self.known.people)


def case(look: Look) -> Page:
    """Return up to four answers to a case beside each other."""
    run = run_named(look, look.path["run"])
    name = look.args.text("case")
    siblings = answers_to(look.connection, run.id, name)
    if not siblings:
        raise UsageError(f"run {run.id} has no case {name!r}", hint="see the grid of the run")
    picked = _picked(siblings, look.args.texts("pick"))
    near = neighbouring_cases(look.connection, run.id, name)
    differ = look.args.flag("diff")
    shown = _beside(look, run, picked, differ=differ)

    def again(**changes: Any) -> str:
        kept = {"case": name, "pick": look.args.texts("pick"), "diff": differ}
        return look.links.to("run", run.id, "case", **{**kept, **changes})

    return Page(
        "case",
        f"{name}, {run.experiment}",
        {
            "run": run,
            "case": name,
            "marks": labels_of(run),
            "siblings": siblings,
            "picks": look.args.texts("pick"),
            "picked": {each.id for each in picked},
            "beside": shown,
            "asked": next((each.known.case for each in shown if each.known.case), None),
            "facts": case_kind(look.connection, run.id, name),
            "differ": differ,
            "again": again,
            "most": MOST,
            "before": near.before,
            "after": near.after,
        },
        crumbs=crumbs_of(look, run, Crumb(f"run {run.id}", look.links.to("run", run.id))),
        area="home",
    )


def _picked(siblings: list[CaseAnswer], wanted: list[str]) -> list[CaseAnswer]:
    """Return the answers that were picked; else the first draw of each prompt, model and side."""
    chosen = [each for each in siblings if each.id[:SHOWN_ID] in wanted]
    if not chosen:
        chosen = [each for each in siblings if each.draw == 0]
    if len(chosen) == 1:  # nothing to compare it with but a further draw
        chosen = siblings
    return chosen[:MOST]


def _beside(look: Look, run: Run, picked: list[CaseAnswer], *, differ: bool) -> list[Beside]:
    project = project_of(look)
    usable = project if searchable(project, run.experiment) else None
    found: list[Beside] = []
    for position, each in enumerate(picked):
        # The case is the same for all of them, and reading it takes time.
        source = usable if position == 0 else None
        known = explain(look.connection, source, run, find_cell(look.connection, run.id, each.id))
        output = known.output
        text = redacted(output.raw if output.malformed else output.text) if output else ""
        changes = word_diff(found[0].text, text) if differ and found else None
        own = own_of(look, run, known.cell, known.people)
        found.append(Beside(each, known, text, changes, own))
    return found
