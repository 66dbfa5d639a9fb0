"""Sentences of gates, as they are shown in reports and on pull requests.

Sentences on comparisons of scores and amounts are those of `edison_ci.stats.sentences`; here are
those on numbers that are compared as they are, and on gates that have no number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.numeric import exceeds, fixed
from edison_ci.records import Verdict
from edison_ci.stats.flips import ONE_ANSWER
from edison_ci.stats.sentences import (
    cases,
    gate_p_words,
    gate_sentence,
    more_cases,
    p_words,
    points,
    settled_by,
    signed,
    sureness,
    win_sentence,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.config.gates import Gate
    from edison_ci.plan.interim_analysis import InterimAnalysis
    from edison_ci.results.metrics import Metric
    from edison_ci.results.samples import Share, Variant
    from edison_ci.stats.corrected import JudgeFavor
    from edison_ci.stats.flips import CaseFlips, Flips
    from edison_ci.stats.gates import Limit
    from edison_ci.stats.pairwise import WinRate
    from edison_ci.stats.verdicts import GateDecision

MORE_REPEATS = "More repeats need both sides in one run: `edison run --against REF`."
WAITING = "Decided when sampling stops."
BASE_TOO = "The base fails it too."
NEAR = "perhaps a real drop close to your tolerance"
_LISTED = 5
IDENTICAL = "nothing to compare: identical outputs by construction"


def no_base(ref: str | None, invalid: str = "") -> str:
    """Return that there is no base, and how to get one; `ref` is the base that was given.

    `invalid` is the first problem of its experiment, where it has one that is not valid.
    """
    if ref is not None and invalid:
        return f"Nothing to compare with: the experiment is not valid at {ref}: {invalid}."
    if ref is not None:
        return f"Nothing to compare with: {ref} has no such experiment."
    return "No base to compare with: get one with `edison run --against REF`, such as main."


def no_base_of(variant: Variant | None) -> str:
    """Return that the base has no such prompt with that model."""
    if variant is None:
        return "Nothing to compare with: the base has none of these prompts and models."
    return f"Nothing to compare with: the base has no {variant.prompt} with {variant.model}."


def outside(variant: Variant) -> str:
    """Return that a model does not count, because the experiment does not list it."""
    return f"Does not count: {variant.model} is not a model of the experiment."


def comparison(decision: GateDecision, metric: Metric) -> str:
    """Return how both sides compare on the same cases."""
    if IDENTICAL in decision.notes:
        return _identical(decision)
    if decision.n == 0:
        return _no_value(metric.label, "compared: no case has a value on both sides", decision)
    if NEAR in decision.notes and decision.value is not None and decision.interval is not None:
        low, high = (signed(end) for end in decision.interval)
        more = decision.n_more
        further = f" About {more_cases(more)} would settle it if it stays so." if more else ""
        sentence = f"Changed by {signed(decision.value)} (likely {low} to {high}): {NEAR}.{further}"
        return _with_notes(sentence, decision)
    if decision.kind == "relative" and decision.value is None:
        return _with_notes(_from_nothing(decision, metric), decision)
    return _with_notes(gate_sentence(decision, what=metric.label), decision)


def corrected(labels: int, judge: float) -> str:
    """Return that human labels of both sides corrected a comparison."""
    return (
        f"Corrected by human grades of both sides of {cases(labels)}; the judge alone says "
        f"{signed(judge)}."
    )


def not_confirmed(decision: GateDecision, favor: JudgeFavor) -> str:
    """Return that people do not confirm what the judge would let pass."""
    low, high = (signed(end) for end in decision.interval or (-1.0, 1.0))
    return (
        f"The judge alone would pass it: changed by {signed(decision.value or 0.0)} (likely {low} "
        f"to {high}). But on {cases(favor.n)} that people graded on both sides the judge favors "
        f"the head by {points(favor.value)} points (one-sided "
        f"{p_words(favor.p.value)} for any favor). Grade more cases of both sides: edison grade."
    )


def flips(
    decision: GateDecision, by_answers: Flips, cases_of: CaseFlips, *, net: bool = False
) -> str:
    """Return how many cases are newly failing, and whether that keeps the ceiling.

    `net` tells that fixed cases were taken off, where no repeats show the noise.
    """
    if IDENTICAL in decision.notes:
        return _identical(decision)
    if decision.value is None:
        return _no_value("Flips", "counted: no case has a result on both sides", decision)
    sentence = f"{cases_of.counts} of {cases(cases_of.n)}"
    if by_answers.noise is not None:
        broke, noise = (
            _percent(flipped / by_answers.n) for flipped in (by_answers.broken, by_answers.noise)
        )
        sentence += f"; by answers {broke} broke, {noise} by noise"
    elif net:
        sentence += ", net of fixed ones"
    asked = f"the {_percent(decision.margin)} allowed"
    if decision.verdict is Verdict.PASS and decision.worst_plausible is not None:
        worst = _percent(max(0.0, decision.worst_plausible))
        sentence += f": at worst {worst}, inside {asked}."
    elif decision.verdict is Verdict.FAIL:
        sentence += f": more than {asked}.{gate_p_words(decision)}"
    else:
        sentence += f": not clear whether it is inside {asked}.{_further(decision)}"
    sentence = _with_notes(sentence, decision)
    return (
        f"{sentence} {ONE_ANSWER[0].upper()}{ONE_ANSWER[1:]}."
        if ONE_ANSWER in decision.notes
        else sentence
    )


def worst_slice(sentence: str, tag: str, count: int, small: Sequence[tuple[str, int]]) -> str:
    """Return the sentence of the worst slice, and which slices are too small for a verdict."""
    of = f"Worst of {count:,} slices" if count > 1 else "The only slice of enough cases"
    sentence = f"{of}, {tag}: {sentence}"
    if not small:
        return sentence
    listed = ", ".join(f"{name} ({n:,})" for name, n in small[:_LISTED])
    more = f" and {len(small) - _LISTED:,} more" if len(small) > _LISTED else ""
    return f"{sentence} Too small for a verdict: {listed}{more}."


def no_slice(fewest: int) -> str:
    """Return that no tag has enough cases."""
    return f"No slice has {fewest} cases: give cases tags, or more cases to each tag."


PUSH_UNKNOWN = "number of earlier pushes unknown: not counted"


def push_note(push: int, alpha: float) -> str:
    """Return at which confidence a push had to pass."""
    confidence = fixed(100 * (1 - alpha), 2)
    return f"push {push:,} of this pull request: to pass takes {confidence}% confidence"


def at_push(sentence: str, note: str) -> str:
    """Return a sentence with what holds for the push at which it was decided."""
    return f"{sentence} {note[:1].upper()}{note[1:]}."


def distance(decision: GateDecision, name: str) -> str:
    """Return how far a head is from a fixed version, for the beginning of a sentence."""
    if decision.kind != "change" or decision.value is None or decision.interval is None:
        return f"Against {name}: "
    low, high = (signed(end) for end in decision.interval)
    return f"Distance to {name}: {signed(decision.value)} points (likely {low} to {high}). "


def planned_interim(sentence: str, decision: GateDecision, interim: InterimAnalysis) -> str:
    """Return a sentence with the planned interim analysis at which it was decided."""
    repeats = "1 repeat" if interim.at == 1 else f"{interim.at:,} repeats"
    at = f"at interim analysis {interim.number} of {interim.of}, at {repeats} a case"
    if decision.verdict is not Verdict.INCONCLUSIVE:
        return f"{sentence} Clear {at}."
    if interim.last:
        return f"{sentence} Still not clear {at}."
    return f"{sentence} Not clear {at}."


def sampled(decision: GateDecision, metric: Metric, interim: InterimAnalysis) -> str:
    """Return how both sides compare on the cases measured so far."""
    if decision.verdict is Verdict.INCONCLUSIVE and decision.value is not None:
        low, high = (signed(end) for end in decision.interval or (-1.0, 1.0))
        sentence = _with_notes(
            f"Changed by {signed(decision.value)} (likely {low} to {high}).", decision
        )
        for note in decision.notes:
            sentence += f" {note[:1].upper()}{note[1:]}." if "comparisons" in note else ""
    else:
        sentence = comparison(decision, metric)
    reached = f"{interim.at:,} of {cases(interim.most)} (early-stopping corrected)"
    if decision.verdict is not Verdict.INCONCLUSIVE:
        return f"{sentence} Clear after {reached}."
    return f"{sentence} {'Still not' if interim.last else 'Not'} clear after {reached}."


def level(decision: GateDecision, metric: Metric) -> str:
    """Return how a score compares with a floor or ceiling."""
    if decision.n == 0:
        return _no_value(metric.label, "measured: no case has a value", decision)
    return _with_notes(gate_sentence(decision, what=metric.label), decision)


def pass_level(decision: GateDecision, limit: Limit, *, whole: bool) -> str:
    """Return how a pass rate compares with a floor or ceiling; `whole` cases pass or fail."""
    if decision.n == 0 or decision.value is None:
        return _no_value("Pass rate", "measured: no case passed or failed", decision)
    rate, n = _percent(decision.value), decision.n
    sentence = f"Pass rate {rate} over {cases(n)}"
    if whole:
        sentence = f"{round(decision.value * n):,} of {n:,} passed: {rate}"
    if decision.interval is not None:
        sentence += (
            f" ({fixed(100 * decision.interval.low)} to {fixed(100 * decision.interval.high)})"
        )
    asked, sure = limit_words(limit, _percent(limit.value)), sureness(decision.alpha)
    worst, best = decision.worst_plausible, decision.best_plausible
    if decision.verdict is Verdict.PASS and worst is not None:
        sentence += f", worst plausible {_percent(worst)} ({sure}): keeps {asked}."
    elif decision.verdict is Verdict.FAIL and best is not None:
        sentence += f", best plausible {_percent(best)} ({sure}): misses {asked}."
    else:
        sentence += f": not clear whether it keeps {asked}.{_further(decision)}"
    return _with_notes(sentence, decision)


def every_pass(decision: GateDecision, failed: int) -> str:
    """Return whether all cases pass, where nothing else is allowed."""
    if decision.n == 0 or decision.value is None:
        return _no_value("Pass rate", "measured: no case passed or failed", decision)
    if decision.verdict is Verdict.FAIL:
        sentence = f"{failed:,} of {cases(decision.n)} failed; all must pass."
    elif decision.verdict is Verdict.PASS and decision.n == 1:
        sentence = "The only graded case passed."
    elif decision.verdict is Verdict.PASS:
        sentence = f"All {cases(decision.n)} passed, as they must."
    else:
        sentence = (
            f"None of the {cases(decision.n)} that were graded failed, but others are missing."
        )
    return _with_notes(sentence, decision)


def share_level(decision: GateDecision, metric: Metric, share: Share, limit: Limit) -> str:
    """Return how a share of this run compares with its limit."""
    if share.value is None:
        return f"There is no answer to count {metric.label} in."
    asked = limit_words(limit, _percent(limit.value))
    return f"{_counted(metric, share)}: {_keeps(decision)} {asked}."


def share_change(
    decision: GateDecision, metric: Metric, base: Share, head: Share, allowed: str
) -> str:
    """Return how a share compares with the base's."""
    if base.value is None or head.value is None:
        side = "base" if base.value is None else "head"
        return f"The {side} has no answer to count {metric.label} in."
    inside = "inside" if decision.verdict is Verdict.PASS else "more than"
    before = f"{base.hits:,} of {base.of:,} in the base ({_percent(base.value)})"
    return f"{_counted(metric, head)}, {before}: {inside} the {allowed} allowed."


def amount_level(decision: GateDecision, metric: Metric, limit: Limit) -> str:
    """Return how a mean amount compares with its limit."""
    if decision.value is None:
        return _no_value(metric.label, "measured: no case has a value", decision)
    asked = limit_words(limit, amount(metric, limit.value))
    sentence = f"{metric.label} {amount(metric, decision.value)} a case ({cases(decision.n)})"
    return _with_notes(f"{sentence}: {_keeps(decision)} {asked}.", decision)


def tail_level(decision: GateDecision, metric: Metric, limit: Limit, *, fewest: int) -> str:
    """Return how a latency compares with its limit."""
    if decision.value is None:
        return f"{metric.label} needs {fewest} live calls; there are {decision.n:,}."
    asked = limit_words(limit, amount(metric, limit.value))
    sentence = f"{metric.label} {amount(metric, decision.value)} over {decision.n:,} calls"
    keeps = "keeps" if decision.verdict is Verdict.PASS else "misses"
    return _with_notes(f"{sentence}: {keeps} {asked}.", decision)


def tail_change(
    decision: GateDecision, metric: Metric, values: tuple[float | None, float | None], fewest: int
) -> str:
    """Return how a latency compares with the base's; `values` are base and head."""
    base, head = values
    if base is None or head is None:
        return f"{metric.label} needs {fewest} live calls on each side; there are {decision.n:,}."
    kept = decision.value is not None and not exceeds(decision.value, decision.margin)
    inside = "inside" if kept else ""
    change = "" if decision.value is None else f" ({fixed(100 * decision.value, signed=True)}%)"
    sentence = f"{metric.label} {amount(metric, head)}, {amount(metric, base)} in the base{change}"
    allowed = f"the {100 * decision.margin:g}% allowed"
    return _with_notes(f"{sentence}: {inside or 'more than'} {allowed}.", decision)


def win_comparison(decision: GateDecision, rate: WinRate, names: tuple[str, str]) -> str:
    """Return which side is preferred, and whether the head is no worse than the base."""
    if IDENTICAL in decision.notes:
        return _identical(decision)
    sentence = win_sentence(rate, a=names[0], b=names[1])
    if decision.verdict is Verdict.PASS and decision.worst_plausible is not None:
        worst, asked = _percent(decision.worst_plausible), _percent(decision.margin)
        sure = sureness(decision.alpha)
        sentence += (
            f" Worst plausible win rate {worst} ({sure}): keeps the {asked} that you tolerate."
        )
    elif decision.verdict is Verdict.FAIL:
        if decision.best_plausible is not None:
            sentence += (
                f" At most {_percent(decision.best_plausible)} ({sureness(decision.alpha)})."
            )
        sentence += gate_p_words(decision)
    elif decision.n_more is not None:
        few = f"{cases(decision.n)} {'is' if decision.n == 1 else 'are'} too few"
        sentence += (
            f" {few}: about {decision.n_more:,} more would settle it if nothing really changed."
        )
    return _with_notes(sentence, decision)


def win_level(decision: GateDecision, rate: WinRate, names: tuple[str, str], limit: Limit) -> str:
    """Return which side is preferred, and whether the win rate keeps a floor or ceiling."""
    sentence = win_sentence(rate, a=names[0], b=names[1])
    asked, sure = limit_words(limit, _percent(limit.value)), sureness(decision.alpha)
    worst, best = decision.worst_plausible, decision.best_plausible
    if decision.verdict is Verdict.PASS and worst is not None:
        sentence += f" Worst plausible win rate {_percent(worst)} ({sure}): keeps {asked}."
    elif decision.verdict is Verdict.FAIL and best is not None:
        sentence += f" Best plausible win rate {_percent(best)} ({sure}): misses {asked}."
    else:
        sentence += f" Not clear whether a win rate of {_percent(rate.value or 0.0)} keeps {asked}."
        sentence += _further(decision)
    return _with_notes(sentence, decision)


def unmeasured(gate: Gate, *, picked: int = 0) -> str:
    """Return that a run has not measured what a gate needs."""
    if gate.use == "human":
        sentence = "No answer of this run was graded by a person"
        if picked:
            sentence = f"People graded {cases(picked)} that were picked, and no random sample"
        return f"{sentence}: run `edison grade`, then `edison compare --gates`."
    return "No answers of this run were compared head to head."


def limit_words(limit: Limit, value: str) -> str:
    """Return a floor or ceiling in words."""
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
    inputs = metric.name.startswith("safety.input_")
    noun = "cell" if inputs else "answer"
    done = f"show{'s' if share.hits == 1 else ''} {metric.label}"
    if metric.name == "errors":
        noun, done = "cell", "ended in an error"
    of = f"{share.of:,} {noun}{'' if share.of == 1 else 's'}"
    return f"{share.hits:,} of {of} {done} ({_percent(share.value or 0.0)})"


def _from_nothing(decision: GateDecision, metric: Metric) -> str:
    """Return that an amount was 0 in the base, where no relative change exists."""
    if decision.verdict is Verdict.FAIL:
        return f"{metric.label} was 0 in the base and is above 0 now.{gate_p_words(decision)}"
    return (
        f"{metric.label}: {cases(decision.n)} {'is' if decision.n == 1 else 'are'} too few to tell."
    )


def _keeps(decision: GateDecision) -> str:
    verbs = {Verdict.PASS: "keeps", Verdict.FAIL: "misses"}
    return verbs.get(decision.verdict, "not clear whether it keeps")


def _further(decision: GateDecision) -> str:
    if decision.n_more is None:
        return ""
    return f" {settled_by(decision)}"


def _identical(decision: GateDecision) -> str:
    sentence = f"Nothing to compare: identical outputs ({cases(decision.n)})."
    return _with_notes(sentence, decision)


def _no_value(what: str, why: str, decision: GateDecision) -> str:
    missing = f" ({cases(decision.missing)} missing)" if decision.missing else ""
    return f"{what} could not be {why}{missing}."


def _with_notes(sentence: str, decision: GateDecision) -> str:
    """Add notes that matter to a reader, unless the sentence has them already."""
    for note in decision.notes:
        few = note == "very few cases" and decision.verdict is not Verdict.INCONCLUSIVE
        words = ("missing", "advisory", "clusters", "differences are")
        matters = few or any(word in note for word in words)
        if matters and note.lower() not in sentence.lower():
            sentence = f"{sentence} {note[:1].upper()}{note[1:]}."
    return sentence


def _percent(share: float) -> str:
    return f"{fixed(100 * share, 1)}%".replace(".0%", "%")
