"""Texts of pull requests: title, commit message and description of a refined prompt, cut to fit.

The description gives reason, evidence, failing examples and how to decide. Notes, reasons and
answers are written by models: they are quoted as code, and never part of the title or the commit
message, in which a forge looks for commands.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from edison_ci._dataclass import dataclass
from edison_ci.numeric import NOTHING, change, counted, dollars, probability, score
from edison_ci.records import Move
from edison_ci.report.document import Name, Section, Table
from edison_ci.report.markdown import Limit, code, fenced, fit, prose

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edison_ci.store.suggestions import Suggestion

MAX_BODY_CHARS = 60_000
"""The longest body that is sent. GitHub refuses more than 65,536 characters."""

_FENCE = re.compile(r"[ \t>]*(`{3,}|~{3,})(.*)")
_DETAILS = re.compile(r"<(/?)details\b", re.IGNORECASE)

MOST_EXAMPLES = 10
_CASES = 20
_SETS = (("holdout", "held-out"), ("train", "training"))
"""Held-out cases come first: only they estimate the improvement."""
_EXAMPLES_CHARS = 30_000
_DECIDED = {
    "better": "better",
    "worse": "worse",
    "same": "no practical difference",
    "unclear": "undecided",
}
_NOT_IN_TITLES = re.compile(r"[^\w -]|-(?=\d)")
"""Removed from titles and commit messages: what a forge may treat as a mention or a command."""
_HIDDEN = "<!-- edison-ci:suggestion:v1 {} -->"


@dataclass(frozen=True, slots=True)
class Example:
    """A failing answer from the refiner's request."""

    case: str
    model: str
    score: float | None
    failed: tuple[tuple[str, str], ...] = ()
    """Names of failed components, with reasons."""
    output: str | None = None
    """None if it is no longer stored."""


@dataclass(frozen=True, slots=True)
class ProposalText:
    """A suggestion with the content of its proposal."""

    suggestion: Suggestion
    examples: tuple[Example, ...] = ()
    private: bool = False
    """Whether texts of cases, answers and models must not leave the results."""
    lines_only: bool = False
    """Whether it is proposed as suggested lines in the pull request of another author."""

    @property
    def evidence(self) -> Mapping[str, Any]:
        """The stored evidence."""
        return self.suggestion.evidence


def marker(suggestion: Suggestion) -> str:
    """Return the hidden line that identifies a text about a suggestion."""
    return _HIDDEN.format(suggestion.hash)


def title_of(suggestion: Suggestion) -> str:
    """Return the title of the pull request and the commit."""
    names = [
        " ".join(_NOT_IN_TITLES.sub(" ", name).split())[:40] for name in suggestion.targets[:3]
    ]
    named = ", ".join(name for name in names if name)
    return f"Refine {suggestion.prompt}{f': {named}' if named else ''}"


def message_of(suggestion: Suggestion) -> str:
    """Return the commit message below the title: numbers only, no text of a model."""
    lines = [f"Suggested by edison for the experiment {suggestion.experiment}."]
    for key, name in _SETS:
        if measured := _measured(suggestion.evidence, key):
            lines.append(f"On {_n(measured)} {name} cases: {_change(measured)}.")
    lines += ["Measured with simulated models."] if suggestion.simulated else []
    lines += ["Not shown to help."] if not suggestion.proven else []
    return "\n".join(lines)


def proposal_body(proposal: ProposalText, *, most: int = MAX_BODY_CHARS) -> str:
    """Return the description of the pull request, within the size limit."""
    first = f"{marker(proposal.suggestion)}\n\n"
    sections = [
        Section("", tuple(_opening(proposal))),
        Section("Why", tuple(_why(proposal))),
        *_evidence(proposal),
        Section("How to decide", tuple(_how_to_decide(proposal))),
        _examples(proposal),
        _guardrails(proposal.suggestion),
    ]
    limit = Limit(most - len(first), len, f"`edison review show {proposal.suggestion.id}`")
    return (
        first + fit([section for section in sections if section is not None], limit)
    ).rstrip() + "\n"


def _opening(proposal: ProposalText) -> list[str]:
    suggestion = proposal.suggestion
    texts = [
        f"edison suggests a change of {code(suggestion.path)} for the experiment "
        f"{code(suggestion.experiment)}. It was measured first; a person decides."
    ]
    if search := _mapping(suggestion.evidence, "search"):
        texts.append(_search_text(search))
    if suggestion.simulated:
        texts.append("**Simulated**: the models were simulated, so the numbers are an example.")
    if not suggestion.proven:
        texts.append("**Unproven**: the measurements do not show that it helps.")
    if suggestion.edited_from is not None:
        texts.append("**Edited by hand** after it was measured, and not measured again.")
    return texts


def _search_text(search: Mapping[str, Any]) -> str:
    text = (
        f"It is the best of {counted(search['measured'], 'version')} that a search over "
        f"{counted(search['generations'], 'generation')} measured on the training cases, so the "
        "gain there is biased by the selection; the gain on the held-out cases is not. Each step "
        f"kept the limits of one refinement; the whole change may be {search['wider']} times as "
        "large."
    )
    if earlier := search["earlier_comparisons"]:
        text += f" The held-out cases were used for {counted(earlier, 'other change')} before."
    return text


def _why(proposal: ProposalText) -> list[str]:
    suggestion = proposal.suggestion
    texts = []
    if suggestion.targets:
        texts.append(f"Weaknesses: {', '.join(code(name) for name in suggestion.targets)}.")
    if proposal.private:
        texts.append(f"The note is private: {code(f'edison review show {suggestion.id}')}.")
    elif suggestion.note.strip():
        texts += ["Note of the refiner:", fenced(suggestion.note)]
    return texts or ["No reason was given."]


def _evidence(proposal: ProposalText) -> list[Section]:
    evidence = proposal.evidence
    rows = [_row(name, measured) for key, name in _SETS if (measured := _measured(evidence, key))]
    if not rows:
        return [Section("Evidence", ("Nothing was measured.",))]
    texts = [prose(str(evidence["sentence"]))] if evidence.get("sentence") else []
    if evidence.get("verified") is False:
        texts.append("**Improvement not verified**: too few held-out cases.")
    head = ("cases", "n", "before", "after", "change", "p, two-sided", "decision")
    return [
        Section("Evidence", tuple(texts), Table.of(head, rows)),
        Section("", tuple(_changed_cases(evidence))),
        _criteria(evidence),
        Section("", tuple(_price(proposal.suggestion))),
    ]


def _measured(evidence: Mapping[str, Any], key: str) -> Mapping[str, Any] | None:
    measured = evidence.get(key)
    return measured if isinstance(measured, dict) else None


def _row(name: str, measured: Mapping[str, Any]) -> tuple[str, ...]:
    p = _mapping(measured, "difference").get("p")
    return (
        name,
        _n(measured),
        _level(_mapping(measured, "before")),
        _level(_mapping(measured, "after")),
        _change(measured),
        probability(p),
        _DECIDED.get(str(measured.get("decision")), NOTHING),
    )


def _mapping(mapping: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = mapping.get(key)
    return value if isinstance(value, dict) else {}


def _n(measured: Mapping[str, Any]) -> str:
    n = measured.get("n")
    return f"{n:,}" if isinstance(n, int) else NOTHING


def _level(level: Mapping[str, Any]) -> str:
    estimate, low, high = (level.get(key) for key in ("estimate", "low", "high"))
    if estimate is None:
        return NOTHING
    return score(estimate) + (
        "" if low is None or high is None else f" ({score(low)} to {score(high)})"
    )


def _change(measured: Mapping[str, Any]) -> str:
    moved = _mapping(measured, "difference")
    return change(moved.get("estimate"), moved.get("low"), moved.get("high"))


def _changed_cases(evidence: Mapping[str, Any]) -> list[str]:
    texts = []
    for key, name in _SETS:
        for move in Move:
            cases = (_measured(evidence, key) or {}).get(move) or []
            if cases:
                more = f" and {len(cases) - _CASES:,} more" if len(cases) > _CASES else ""
                listed = ", ".join(code(str(case)) for case in cases[:_CASES])
                texts.append(f"{counted(len(cases), f'{name} case')} {move.words}: {listed}{more}.")
    return texts


def _criteria(evidence: Mapping[str, Any]) -> Section:
    rows = []
    for criterion in evidence.get("criteria") or []:
        before, after = criterion.get("before"), criterion.get("after")
        gained = None if before is None or after is None else after - before
        cells = (
            Name(str(criterion.get("name"))),
            score(before),
            score(after),
            change(gained, None, None),
        )
        rows.append(cells)
    head = ("on the training cases", "before", "after", "change")
    return Section(table=Table.of(head, rows))


def _price(suggestion: Suggestion) -> list[str]:
    growth, cost = (
        _mapping(suggestion.evidence, "growth"),
        _mapping(suggestion.evidence, "cost_microusd"),
    )
    texts = []
    if (grown := growth.get("chars")) is not None:
        texts.append(
            f"The prompt {'grows' if grown >= 0 else 'shrinks'} by {abs(grown):,} characters."
        )
    if cost.get("before") is not None and cost.get("after") is not None:
        before, after = dollars(cost["before"]), dollars(cost["after"])
        texts.append(f"An answer costs {after} ({before} before).")
    texts.append(f"Finding and measuring the change cost {dollars(suggestion.cost_microusd)}.")
    return [" ".join(texts)]


def _how_to_decide(proposal: ProposalText) -> list[str]:
    suggestion = proposal.suggestion
    if proposal.lines_only:
        accept = "Commit the suggested lines to accept it, or resolve the comments to decline it."
    else:
        accept = "Merge the pull request to accept it; nothing is merged automatically."
    reject = f'edison review reject {suggestion.id} --reason "..."'
    return [
        accept,
        f"To reject it, close it with a comment that gives the reason, or run {code(reject)}. "
        "The next refinement takes the reason into account.",
        f"Suggestion {code(suggestion.id)}.",
    ]


def _examples(proposal: ProposalText) -> Section | None:
    """Return the failing examples in a fold, as many as fit."""
    blocks: list[str] = []
    for number, example in enumerate(proposal.examples[:MOST_EXAMPLES], 1):
        block = _example(number, example, private=proposal.private)
        if sum(map(len, blocks)) + len(block) > _EXAMPLES_CHARS:
            break
        blocks.append(block)
    if not blocks:
        return None
    many = counted(len(blocks), "failing answer")
    first = f"<details><summary>{many} in the request to the refiner</summary>"
    return Section("", ("\n\n".join([first, *blocks, "</details>"]),))


def _example(number: int, example: Example, *, private: bool) -> str:
    about = f"case {code(example.case)} with {code(example.model)}, score {score(example.score)}"
    blocks = [f"**Example {number}**: {about}"]
    for name, reason in example.failed:
        blocks.append(f"Failed: {code(name)}")
        if reason and not private:
            blocks.append(fenced(reason, most=400))
    if private:
        blocks.append("The texts are private.")
    elif example.output is not None:
        blocks += ["Answer:", fenced(example.output, most=1_000)]
    return "\n\n".join(blocks)


def _guardrails(suggestion: Suggestion) -> Section | None:
    if not suggestion.guardrails:
        return None
    rows: Sequence[tuple[str, ...]] = [
        (code(rail.rule), "pass" if rail.ok else "fail", prose(rail.detail, most=200))
        for rail in suggestion.guardrails
    ]
    return Section(table=Table.of(("guardrail", "result", "detail"), rows), fold="Guardrails")


def utf16_length(text: str) -> int:
    """Return the number of UTF-16 units: how JavaScript counts, never less than other counts."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def truncate(text: str, limit: int = MAX_BODY_CHARS, *, elsewhere: str = "") -> str:
    """Return Markdown of at most `limit` characters, cut between lines, with open blocks closed.

    `elsewhere` names the place of the full text.
    """
    if utf16_length(text) <= limit:
        return text
    lines = text.split("\n")
    kept, closing = _leading_lines(lines, limit - 400 - utf16_length(elsewhere))
    left = lines[len(kept) :]
    rows = sum(line.lstrip().startswith("|") for line in left)
    what = f"{rows:,} more rows" if rows else f"{len(left):,} more lines"
    where = f", see {elsewhere}" if elsewhere else ""
    return "\n".join([*kept, *closing, "", f"… {what}{where}", ""])


def _leading_lines(lines: list[str], room: int) -> tuple[list[str], list[str]]:
    """Return as many lines as there is room for, and the lines that close their open blocks."""
    kept: list[str] = []
    fence, open_details = "", 0
    for line in lines:
        room -= utf16_length(line) + 1
        if room < 0:
            break
        kept.append(line)
        fence, open_details = _open_marks(line, fence, open_details)
    closing = [fence] if fence else []
    closing += ["", *["</details>"] * min(open_details, 20)] if open_details > 0 else []
    return kept, closing


def _open_marks(line: str, fence: str, open_details: int) -> tuple[str, int]:
    match = _FENCE.match(line)
    if fence:
        closes = match and match[1].startswith(fence) and not match[2].strip()
        return ("" if closes else fence), open_details
    if match:
        return match[1], open_details
    for tag in _DETAILS.findall(line):
        open_details += -1 if tag else 1
    return "", max(open_details, 0)
