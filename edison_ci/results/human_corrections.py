"""Automatic scores corrected by human grades, in sentences (STATS 14).

A correction is either a number with its interval or the reason why there is none; both are
sentences that a summary shows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edison_ci._dataclass import dataclass
from edison_ci.documents.record_json import fields_of
from edison_ci.numeric import fixed
from edison_ci.stats.arrays import generator_for
from edison_ci.stats.calibration import LabelCounts, corrected_rate, side_bias
from edison_ci.stats.corrected import FEWEST_LABELS, LabelledScores, corrected_mean
from edison_ci.stats.scores import unit_of
from edison_ci.stats.sentences import correction_sentence, side_sentence, signed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from edison_ci.stats.arrays import Range
    from edison_ci.stats.corrected import CorrectedMean, RandomSample


_FEWEST_FOR_SIDES = 5
"""A sign-flip test of fewer pairs can never be significant."""


@dataclass(frozen=True, slots=True)
class Correction:
    """Estimate of the score that people would give, or why there is none."""

    of: str
    """score, pass_rate, change or side."""
    sentence: str
    applies: bool
    value: float | None = None
    low: float | None = None
    high: float | None = None
    automatic: float | None = None
    """What judge and checks say."""
    n: int = 0
    """Labels it rests on."""
    method: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return it as it appears in `--json`."""
        return {
            **fields_of(self, "of", "applies", estimate="value"),
            **fields_of(self, "low", "high", "automatic", "n", "method", "sentence"),
        }


def score_of(
    scored: Mapping[str, float],
    human: Mapping[str, float],
    sample: RandomSample,
    *,
    who: str,
    clusters: Mapping[str, str],
) -> Correction:
    """Correct the mean of automatic values by human grades of a random sample of the cases."""
    of = "pass_rate" if who.startswith("Pass rate") else "score"
    refused = _no_correction(of, sample, human)
    if refused is not None:
        return refused
    corrected = corrected_mean(_labelled(scored, human, sample, clusters))
    return _correction(of, corrected, correction_sentence(corrected, who=who))


def _no_correction(of: str, sample: RandomSample, human: Mapping[str, float]) -> Correction | None:
    """Return why there is no correction, if there is none."""
    if sample.n < FEWEST_LABELS and sample.n < sample.of and sample.picked >= sample.n:
        sentence = (
            f"No correction: of {len(human):,} graded cases {sample.picked:,} were picked, and "
            f"only {sample.n:,} are a random sample; {FEWEST_LABELS} are needed: edison grade."
        )
        return Correction(of, sentence, applies=False, n=sample.n, method="none: no random sample")
    return None


def change_corrections(
    differences: Mapping[str, float],
    human: Mapping[str, float],
    sample: RandomSample,
    *,
    who: str,
    clusters: Mapping[str, str],
) -> Iterator[Correction]:
    """Correct the change from the base by human grades of both sides (paired differences)."""
    if sample.n < FEWEST_LABELS:
        return
    corrected = corrected_mean(_labelled(differences, human, sample, clusters), differences=True)
    if corrected.value is None or corrected.judge_mean is None:
        return
    likely = ""
    if corrected.interval is not None:
        likely = f" (likely {signed(corrected.interval.low)} to {signed(corrected.interval.high)})"
    sentence = (
        f"{who} the change is {signed(corrected.judge_mean)}. Checked against {corrected.n} human "
        f"labels of both sides: corrected {signed(corrected.value)}{likely}."
    )
    yield _correction("change", corrected, sentence)


def side_bias_corrections(
    judged: Sequence[Mapping[str, float]],
    graded: Sequence[Mapping[str, float]],
    cases: Sequence[str],
    about: str,
) -> Iterator[Correction]:
    """Test whether the judge is more generous to one side than people are (base, then head)."""
    if len(cases) < _FEWEST_FOR_SIDES:
        return
    base, head = ([(judged[side][case], graded[side][case]) for case in cases] for side in (0, 1))
    bias = side_bias(base, head, rng=generator_for(cases))
    warning = None if bias is None else side_sentence(bias)
    if bias is None or warning is None:
        return
    low, high = _ends(bias.interval)
    sentence = f"{about}: {warning} ({bias.n} cases that people graded on both sides)."
    yield Correction(
        "side", sentence, applies=True, value=bias.value, low=low, high=high, n=bias.n,
        method=bias.method,
    )  # fmt: skip


def rate_of(counts: LabelCounts, passes: Mapping[str, float]) -> Iterator[Correction]:
    """Correct the judges' pass rate by how they did on labels of other answers."""
    shares = list(passes.values())
    if not shares or any(share not in (0.0, 1.0) for share in shares):
        return
    n = counts.passes + counts.fails
    corrected = corrected_rate(round(sum(shares)), len(shares), counts)
    if corrected.value is None:
        sentence = f"The judges' pass rate of {fixed(100 * corrected.raw)}% is not corrected: "
        sentence += f"{corrected.method.removeprefix('refused: ')} ({n} human labels)."
        yield Correction(
            "rubric_pass_rate", sentence, applies=False, automatic=corrected.raw, n=n,
            method=corrected.method,
        )  # fmt: skip
        return
    low, high = _ends(corrected.interval)
    likely = "" if low is None or high is None else f" ({fixed(100 * low)} to {fixed(100 * high)})"
    sentence = (
        f"The judges pass {fixed(100 * corrected.raw)}%. On {n} human labels they find "
        f"{_percent(corrected.sensitivity)} of what passes and "
        f"{_percent(corrected.specificity)} of what fails: "
        f"corrected {fixed(100 * corrected.value)}%{likely}."
    )
    yield Correction(
        "rubric_pass_rate", sentence, applies=True, value=corrected.value, low=low, high=high,
        automatic=corrected.raw, n=n, method=corrected.method,
    )  # fmt: skip


def _labelled(
    everything: Mapping[str, float],
    human: Mapping[str, float],
    sample: RandomSample,
    clusters: Mapping[str, str],
) -> LabelledScores:
    cases = sorted(sample.cases)
    others = [case for case in everything if case not in sample.cases]
    groups = None
    if clusters:
        named = [[unit_of(case, clusters.get(case)) for case in some] for some in (cases, others)]
        groups = (named[0], named[1])
    return LabelledScores(
        human=[human[case] for case in cases],
        judge=[everything[case] for case in cases],
        unlabelled=[everything[case] for case in others],
        clusters=groups,
    )


def _correction(of: str, corrected: CorrectedMean, sentence: str) -> Correction:
    low, high = _ends(corrected.interval)
    return Correction(
        of,
        sentence,
        applies=corrected.n >= FEWEST_LABELS,
        value=corrected.value,
        low=low,
        high=high,
        automatic=corrected.judge_mean,
        n=corrected.n,
        method=corrected.method,
    )


def _ends(interval: Range | None) -> tuple[float | None, float | None]:
    return (None, None) if interval is None else (interval.low, interval.high)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{fixed(100 * share)}%"
