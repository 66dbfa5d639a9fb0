"""Sentences for what a gate found.

Comparisons of scores and amounts are said as `edison_ci.stats.sentences` says them; here are the
numbers that are compared as they are, and what there is to say when there is no number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.rounding import exceeds, fixed
from edison_ci.stats.sentences import cases, chance, gate_sentence, more_cases, signed, win_sentence
from edison_ci.stats.verdicts import Verdict

if TYPE_CHECKING:
    from edison_ci.config.decisions import Gate
    from edison_ci.plan.looks import Look
    from edison_ci.results.samples import Metric, Share, Subject
    from edison_ci.stats.levels import Limit
    from edison_ci.stats.pairwise import WinRate
    from edison_ci.stats.verdicts import GateDecision

MORE_DRAWS = "More draws need both sides in one run: `edison run --against REF`."
WAITING = "Decided when sampling stops."
NEAR = "perhaps a real drop close to your tolerance"
IDENTICAL = "nothing to compare: identical outputs by construction"


def no_base(asked: str | None) -> str:
    """Say that there is no base, and how to get one unless that has been done."""
    if asked is not None:
        return f"Nothing to compare with: {asked} has no such experiment."
    return "No base to compare with: get one with `edison run --against REF`, such as main."


def no_base_of(subject: Subject | None) -> str:
    """Say that a prompt with a model is new."""
    if subject is None:
        return "Nothing to compare with: the base has none of these prompts and models."
    return f"Nothing to compare with: the base has no {subject.prompt} with {subject.model}."


def comparison(decision: GateDecision, metric: Metric) -> str:
    """Say how both sides of the same cases compare."""
    if IDENTICAL in decision.notes:
        return _noted(f"Nothing to compare: identical outputs ({cases(decision.n)}).", decision)
    if decision.n == 0:
        gone = _gone(decision)
        return f"{metric.said} could not be compared: no case has a value on both sides{gone}."
    if NEAR in decision.notes and decision.value is not None and decision.interval is not None:
        low, high = (signed(end) for end in decision.interval)
        more = decision.n_more
        further = f" About {more_cases(more)} would settle it if it stays so." if more else ""
        said = f"Changed by {signed(decision.value)} (likely {low} to {high}): {NEAR}.{further}"
        return _noted(said, decision)
    if decision.kind == "relative" and decision.value is None:
        return _noted(_from_nothing(decision, metric), decision)
    return _noted(gate_sentence(decision, what=metric.said), decision)


def planned_look(said: str, decision: GateDecision, look: Look) -> str:
    """Say at which of the planned looks something was decided."""
    draws = "1 draw" if look.at == 1 else f"{look.at:,} draws"
    if decision.verdict is not Verdict.INCONCLUSIVE:
        return f"{said} Clear at look {look.number} of {look.of}, at {draws} a case."
    if look.last:
        return f"{said} Still not clear at look {look.number} of {look.of}, at {draws} a case."
    return f"{said} Not clear at look {look.number} of {look.of}, at {draws} a case."


def sampled(decision: GateDecision, metric: Metric, look: Look) -> str:
    """Say how both sides compare on the cases that were taken so far."""
    if decision.verdict is Verdict.INCONCLUSIVE and decision.value is not None:
        low, high = (signed(end) for end in decision.interval or (-1.0, 1.0))
        said = _noted(f"Changed by {signed(decision.value)} (likely {low} to {high}).", decision)
        for note in decision.notes:
            said += f" {note[:1].upper()}{note[1:]}." if "comparisons" in note else ""
    else:
        said = comparison(decision, metric)
    reached = f"{look.at:,} of {cases(look.most)} (early-stopping corrected)"
    if decision.verdict is not Verdict.INCONCLUSIVE:
        return f"{said} Clear after {reached}."
    return f"{said} {'Still not' if look.last else 'Not'} clear after {reached}."


def level(decision: GateDecision, metric: Metric) -> str:
    """Say how a score compares with a floor or ceiling."""
    if decision.n == 0:
        return f"{metric.said} could not be measured: no case has a value{_gone(decision)}."
    return _noted(gate_sentence(decision, what=metric.said), decision)


def pass_level(decision: GateDecision, limit: Limit, *, whole: bool) -> str:
    """Say how a pass rate compares with a floor or ceiling; `whole` cases pass or fail."""
    if decision.n == 0 or decision.value is None:
        return f"Pass rate could not be measured: no case passed or failed{_gone(decision)}."
    rate, n = _percent(decision.value), decision.n
    said = f"Pass rate {rate} over {cases(n)}"
    if whole:
        said = f"{round(decision.value * n):,} of {n:,} passed: {rate}"
    if decision.interval is not None:
        said += f" ({fixed(100 * decision.interval.low)} to {fixed(100 * decision.interval.high)})"
    asked = limit_said(limit, _percent(limit.value))
    worst, best = decision.worst_plausible, decision.best_plausible
    if decision.verdict is Verdict.PASS and worst is not None:
        said += f", worst plausible {_percent(worst)}: keeps {asked}."
    elif decision.verdict is Verdict.FAIL and best is not None:
        said += f", best plausible {_percent(best)}: misses {asked}."
    else:
        said += f": not clear whether it keeps {asked}.{_further(decision)}"
    return _noted(said, decision)


def share_level(decision: GateDecision, metric: Metric, share: Share, limit: Limit) -> str:
    """Say how a share of this run compares with its limit."""
    if share.value is None:
        return f"There is no answer to count {metric.said} in."
    asked = limit_said(limit, _percent(limit.value))
    return f"{_counted(metric, share)}: {_keeps(decision)} {asked}."


def share_change(
    decision: GateDecision, metric: Metric, base: Share, head: Share, allowed: str
) -> str:
    """Say how a share compares with the base's."""
    if base.value is None or head.value is None:
        side = "base" if base.value is None else "head"
        return f"The {side} has no answer to count {metric.said} in."
    inside = "inside" if decision.verdict is Verdict.PASS else "more than"
    before = f"{base.hits:,} of {base.of:,} in the base ({_percent(base.value)})"
    return f"{_counted(metric, head)}, {before}: {inside} the {allowed} allowed."


def amount_level(decision: GateDecision, metric: Metric, limit: Limit) -> str:
    """Say how a mean amount compares with its limit."""
    if decision.value is None:
        return f"{metric.said} could not be measured: no case has a value{_gone(decision)}."
    asked = limit_said(limit, amount(metric, limit.value))
    said = f"{metric.said} {amount(metric, decision.value)} a case ({cases(decision.n)})"
    return _noted(f"{said}: {_keeps(decision)} {asked}.", decision)


def tail_level(decision: GateDecision, metric: Metric, limit: Limit, *, fewest: int) -> str:
    """Say how a latency compares with its limit."""
    if decision.value is None:
        return f"{metric.said} needs {fewest} live calls; there are {decision.n:,}."
    asked = limit_said(limit, amount(metric, limit.value))
    said = f"{metric.said} {amount(metric, decision.value)} over {decision.n:,} calls"
    keeps = "keeps" if decision.verdict is Verdict.PASS else "misses"
    return _noted(f"{said}: {keeps} {asked}.", decision)


def tail_change(
    decision: GateDecision, metric: Metric, values: tuple[float | None, float | None], fewest: int
) -> str:
    """Say how a latency compares with the base's; `values` are base and head."""
    base, head = values
    if base is None or head is None:
        return f"{metric.said} needs {fewest} live calls on each side; there are {decision.n:,}."
    kept = decision.value is not None and not exceeds(decision.value, decision.margin)
    inside = "inside" if kept else ""
    change = "" if decision.value is None else f" ({fixed(100 * decision.value, signed=True)}%)"
    said = f"{metric.said} {amount(metric, head)}, {amount(metric, base)} in the base{change}"
    allowed = f"the {100 * decision.margin:g}% allowed"
    return _noted(f"{said}: {inside or 'more than'} {allowed}.", decision)


def win_comparison(decision: GateDecision, rate: WinRate, names: tuple[str, str]) -> str:
    """Say who is preferred, and whether the head keeps up with the base."""
    if IDENTICAL in decision.notes:
        return _noted(f"Nothing to compare: identical outputs ({cases(decision.n)}).", decision)
    said = win_sentence(rate, a=names[0], b=names[1])
    if decision.verdict is Verdict.PASS and decision.worst_plausible is not None:
        worst, asked = _percent(decision.worst_plausible), _percent(decision.margin)
        said += f" Worst plausible win rate {worst}: keeps the {asked} that you tolerate."
    elif decision.verdict is Verdict.FAIL and decision.p_adjusted is not None:
        said += f" Chance of seeing this by luck: {chance(decision.p_adjusted)}."
    elif decision.n_more is not None:
        few = f"{cases(decision.n)} {'is' if decision.n == 1 else 'are'} too few"
        said += f" {few}: about {decision.n_more:,} more would settle it if nothing really changed."
    return _noted(said, decision)


def win_level(decision: GateDecision, rate: WinRate, names: tuple[str, str], limit: Limit) -> str:
    """Say who is preferred, and whether the win rate keeps a floor or ceiling."""
    said = win_sentence(rate, a=names[0], b=names[1])
    asked = limit_said(limit, _percent(limit.value))
    worst, best = decision.worst_plausible, decision.best_plausible
    if decision.verdict is Verdict.PASS and worst is not None:
        said += f" Worst plausible win rate {_percent(worst)}: keeps {asked}."
    elif decision.verdict is Verdict.FAIL and best is not None:
        said += f" Best plausible win rate {_percent(best)}: misses {asked}."
    else:
        said += f" Not clear whether a win rate of {_percent(rate.value or 0.0)} keeps {asked}."
        said += _further(decision)
    return _noted(said, decision)


def unmeasured(gate: Gate, *, picked: int = 0) -> str:
    """Say that a run does not have what a gate asks for."""
    if gate.use == "human":
        said = "No answer of this run was graded by a person"
        if picked:
            said = f"People graded {cases(picked)} that were picked, and no random sample"
        return f"{said}: run `edison grade`, then `edison gate`."
    return "No answers of this run were compared head to head."


def limit_said(limit: Limit, value: str) -> str:
    """Say a floor or ceiling."""
    return f"the {'floor' if limit.wanted == 'at_least' else 'ceiling'} of {value}"


def amount(metric: Metric, value: float) -> str:
    """Return an amount with its unit."""
    if metric.name.startswith("cost_usd"):
        digits = fixed(value, 6).rstrip("0")
        whole, _, cents = digits.partition(".")
        return f"${whole}.{cents:0<2}"
    if metric.name.startswith("latency_ms"):
        return f"{fixed(value, grouped=True)} ms"
    return fixed(value, grouped=True)


def _counted(metric: Metric, share: Share) -> str:
    noun, done = "answer", f"show{'s' if share.hits == 1 else ''} {metric.said}"
    if metric.name == "errors":
        noun, done = "cell", "ended in an error"
    of = f"{share.of:,} {noun}{'' if share.of == 1 else 's'}"
    return f"{share.hits:,} of {of} {done} ({_percent(share.value or 0.0)})"


def _from_nothing(decision: GateDecision, metric: Metric) -> str:
    """Say that something costs now that was free: no percentage says by how much."""
    if decision.verdict is Verdict.FAIL and decision.p_adjusted is not None:
        luck = f" Chance of seeing this by luck: {chance(decision.p_adjusted)}."
        return f"{metric.said} was nothing in the base and is not any more.{luck}"
    return (
        f"{metric.said}: {cases(decision.n)} {'is' if decision.n == 1 else 'are'} too few to tell."
    )


def _keeps(decision: GateDecision) -> str:
    said = {Verdict.PASS: "keeps", Verdict.FAIL: "misses"}
    return said.get(decision.verdict, "not clear whether it keeps")


def _further(decision: GateDecision) -> str:
    if decision.n_more is None:
        return ""
    return f" About {more_cases(decision.n_more)} like these would settle it."


def _gone(decision: GateDecision) -> str:
    return f" ({cases(decision.missing)} missing)" if decision.missing else ""


def _noted(said: str, decision: GateDecision) -> str:
    """Add what a reader has to know beside the verdict, unless it has been said."""
    for note in decision.notes:
        few = note == "very few cases" and decision.verdict is not Verdict.INCONCLUSIVE
        told = few or "missing" in note or "advisory" in note
        if told and note.lower() not in said.lower():
            said = f"{said} {note[:1].upper()}{note[1:]}."
    return said


def _percent(share: float) -> str:
    return f"{fixed(100 * share, 1)}%".replace(".0%", "%")
