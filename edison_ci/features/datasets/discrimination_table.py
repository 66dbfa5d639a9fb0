"""Which cases tell models apart, on the terminal and in `--json` of `dataset health`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edison_ci.cli.terminal import BAD, GOOD, ODD, StyledText, Terminal, simulated_label
from edison_ci.features.datasets.case_discrimination import DEAD, CaseVerdict
from edison_ci.numeric import counted, fixed
from edison_ci.stats import discrimination, sentences

if TYPE_CHECKING:
    from edison_ci.features.datasets.case_discrimination import (
        CaseDiscrimination,
        DatasetDiscrimination,
    )

_LISTED = 5


def show_discrimination(terminal: Terminal, found: DatasetDiscrimination) -> None:
    """Print how many cases tell models apart, with the best and the worst of them."""
    if found.too_large:
        terminal.note("too many answers to tell which cases tell models apart")
        return
    if not found.enough:
        if found.subjects:
            terminal.note(
                f"too few answers to tell which cases tell models apart: they are of "
                f"{counted(found.subjects, 'prompt version')} with a model, and at least "
                f"{discrimination.FEWEST_SUBJECTS} are needed"
            )
        return
    apart = found.count(CaseVerdict.SEPARATES)
    said = f"{apart:,} of {counted(len(found.cases), 'case')} tell models apart"
    terminal.result(
        "  ", StyledText(said, GOOD if apart else ODD),
        f" ({found.answers:,} answers, of {found.subjects:,} prompt versions with models)",
        *simulated_label(found.simulated),
    )  # fmt: skip
    ranked = [each for each in found.cases if each.found.interval is not None]
    worst = ranked[_LISTED:][-_LISTED:]
    rows: list[tuple[str, ...]] = [
        ("", "", "correlation with the rest", "score", "p, adjusted", ""),
        *(_row("best", each) for each in ranked[:_LISTED]),
        *(_row("worst", each) for each in worst),
    ]
    if ranked:
        terminal.table(rows, right=(3,))
    _show_rest(terminal, found)


def _row(end: str, each: CaseDiscrimination) -> tuple[str, ...]:
    return (
        f"    {end}",
        each.case,
        _correlation_text(each),
        fixed(100 * each.score, 1),
        "-" if each.p_adjusted is None else sentences.p_words(each.p_adjusted),
        each.verdict.words,
    )


def _correlation_text(each: CaseDiscrimination) -> str:
    found = each.found
    if found.value is None:
        return "-"
    value = fixed(found.value, 2)
    if found.interval is None:
        return value
    return f"{value} ({fixed(found.interval.low, 2)} to {fixed(found.interval.high, 2)})"


_EXPLAINED = {
    CaseVerdict.REVERSED: (BAD, "reversed: who is good elsewhere fails here; check the expected"),
    CaseVerdict.DEAD: (ODD, f"dead weight: no difference, or a correlation of at most {DEAD:g}"),
}


def _show_rest(terminal: Terminal, found: DatasetDiscrimination) -> None:
    for verdict, (color, words) in _EXPLAINED.items():
        named = [each.case for each in found.cases if each.verdict is verdict]
        if named:
            more = f" and {len(named) - 2 * _LISTED:,} more" if len(named) > 2 * _LISTED else ""
            terminal.result("  ", StyledText(f"{counted(len(named), 'case')} {words}", color))
            terminal.result(f"    {', '.join(named[: 2 * _LISTED])}{more}")
    unclear, few = found.count(CaseVerdict.UNCLEAR), found.count(CaseVerdict.TOO_FEW)
    if unclear or few:
        terminal.note(
            f"{counted(unclear, 'case')} unclear, {few:,} with too few answers to tell: "
            "more prompt versions, models or repeats show more"
        )


def discrimination_json(found: DatasetDiscrimination) -> dict[str, Any]:
    """Return how far cases tell apart, as it appears in `--json`."""
    return {
        "enough": found.enough and not found.too_large,
        "subjects": found.subjects,
        "answers": found.answers,
        "simulated": found.simulated,
        "family": found.family,
        "counts": {verdict.name.lower(): found.count(verdict) for verdict in CaseVerdict},
        "cases": [_json(each) for each in found.cases],
    }


def _json(each: CaseDiscrimination) -> dict[str, Any]:
    low, high = each.found.interval or (None, None)
    return {
        "case": each.case,
        "verdict": each.verdict.name.lower(),
        "estimate": each.found.value,
        "low": low,
        "high": high,
        "n": each.found.n,
        "subjects": each.found.subjects,
        "p": each.found.p,
        "p_adjusted": each.p_adjusted,
        "method": each.found.method,
        "level": each.found.level,
        "score": each.score,
    }
