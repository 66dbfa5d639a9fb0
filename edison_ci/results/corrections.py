"""What would people have said, and when can that not be told?

A correction is either a number with its interval or the reason why there is none; both are
sentences that a summary shows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edison_ci.frozen import dataclass
from edison_ci.rounding import fixed
from edison_ci.stats.arrays import generator_for
from edison_ci.stats.calibration import (
    Labelled,
    corrected_mean,
    corrected_rate,
    side_bias,
)
from edison_ci.stats.judge_sentences import correction_sentence, side_sentence
from edison_ci.stats.sampling import FEWEST_LABELS
from edison_ci.stats.sentences import signed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from edison_ci.stats.arrays import Range
    from edison_ci.stats.calibration import CorrectedMean, LabelCounts
    from edison_ci.stats.sampling import RandomSample

_FEWEST_FOR_SIDES = 5
"""A sign-flip test of fewer pairs can never stand out."""


@dataclass(frozen=True, slots=True)
class Correction:
    """What people would have said, or why that cannot be told."""

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
            "of": self.of,
            "applies": self.applies,
            "estimate": self.value,
            "low": self.low,
            "high": self.high,
            "automatic": self.automatic,
            "n": self.n,
            "method": self.method,
            "sentence": self.sentence,
        }


def score_of(
    scored: Mapping[str, float],
    said: Mapping[str, float],
    sample: RandomSample,
    *,
    who: str,
    clusters: Mapping[str, str],
) -> Correction:
    """Correct the mean of automatic values by what people said of a random sample of the cases."""
    of = "pass_rate" if who.startswith("Pass rate") else "score"
    refused = _refused(of, sample, said)
    if refused is not None:
        return refused
    found = corrected_mean(_labelled(scored, said, sample, clusters))
    return _corrected(of, found, correction_sentence(found, who=who))


def _refused(of: str, sample: RandomSample, said: Mapping[str, float]) -> Correction | None:
    """Return why there is no correction, if there is none."""
    if sample.n < FEWEST_LABELS and sample.n < sample.of and sample.picked >= sample.n:
        sentence = (
            f"No correction: of {len(said):,} graded cases {sample.picked:,} were picked, and only "
            f"{sample.n:,} are a random sample; {FEWEST_LABELS} are needed: edison grade."
        )
        return Correction(of, sentence, applies=False, n=sample.n, method="none: no random sample")
    return None


def change_of(
    differences: Mapping[str, float],
    said: Mapping[str, float],
    sample: RandomSample,
    *,
    who: str,
    clusters: Mapping[str, str],
) -> Iterator[Correction]:
    """Correct the change from the base by what people said of both sides (paired differences)."""
    if sample.n < FEWEST_LABELS:
        return
    found = corrected_mean(_labelled(differences, said, sample, clusters), differences=True)
    if found.value is None or found.judge_mean is None:
        return
    likely = ""
    if found.interval is not None:
        likely = f" (likely {signed(found.interval.low)} to {signed(found.interval.high)})"
    sentence = (
        f"{who} the change is {signed(found.judge_mean)}. Checked against {found.n} human labels "
        f"of both sides: corrected {signed(found.value)}{likely}."
    )
    yield _corrected("change", found, sentence)


def sides_of(
    judged: Sequence[Mapping[str, float]],
    graded: Sequence[Mapping[str, float]],
    cases: Sequence[str],
    about: str,
) -> Iterator[Correction]:
    """Test whether the judge is more generous to one side than people are (base, then head)."""
    if len(cases) < _FEWEST_FOR_SIDES:
        return
    base, head = ([(judged[side][case], graded[side][case]) for case in cases] for side in (0, 1))
    found = side_bias(base, head, rng=generator_for(cases))
    said = None if found is None else side_sentence(found)
    if found is None or said is None:
        return
    low, high = _ends(found.interval)
    sentence = f"{about}: {said} ({found.n} cases that people graded on both sides)."
    yield Correction(
        "side", sentence, applies=True, value=found.value, low=low, high=high, n=found.n,
        method=found.method,
    )  # fmt: skip


def rate_of(counts: LabelCounts, passes: Mapping[str, float]) -> Iterator[Correction]:
    """Correct the judges' pass rate by how they did on labels of other answers."""
    shares = list(passes.values())
    if not shares or any(share not in (0.0, 1.0) for share in shares):
        return
    n = counts.passes + counts.fails
    found = corrected_rate(round(sum(shares)), len(shares), counts)
    if found.value is None:
        sentence = f"The judges' pass rate of {fixed(100 * found.raw)}% is not corrected: "
        sentence += f"{found.method.removeprefix('refused: ')} ({n} human labels)."
        yield Correction(
            "rubric_pass_rate", sentence, applies=False, automatic=found.raw, n=n,
            method=found.method,
        )  # fmt: skip
        return
    low, high = _ends(found.interval)
    likely = "" if low is None or high is None else f" ({fixed(100 * low)} to {fixed(100 * high)})"
    sentence = (
        f"The judges pass {fixed(100 * found.raw)}%. On {n} human labels they find "
        f"{_percent(found.sensitivity)} of what passes and {_percent(found.specificity)} of what "
        f"fails: corrected {fixed(100 * found.value)}%{likely}."
    )
    yield Correction(
        "rubric_pass_rate", sentence, applies=True, value=found.value, low=low, high=high,
        automatic=found.raw, n=n, method=found.method,
    )  # fmt: skip


def _labelled(
    everything: Mapping[str, float],
    said: Mapping[str, float],
    sample: RandomSample,
    clusters: Mapping[str, str],
) -> Labelled:
    cases = sorted(sample.cases)
    others = [case for case in everything if case not in sample.cases]
    groups = None
    if clusters:  # a case without one stands for itself
        named = [[clusters.get(c, f"\0alone {c}") for c in some] for some in (cases, others)]
        groups = (named[0], named[1])
    return Labelled(
        human=[said[case] for case in cases],
        judge=[everything[case] for case in cases],
        unlabelled=[everything[case] for case in others],
        clusters=groups,
    )


def _corrected(of: str, found: CorrectedMean, sentence: str) -> Correction:
    low, high = _ends(found.interval)
    return Correction(
        of,
        sentence,
        applies=found.n >= FEWEST_LABELS,
        value=found.value,
        low=low,
        high=high,
        automatic=found.judge_mean,
        n=found.n,
        method=found.method,
    )


def _ends(found: Range | None) -> tuple[float | None, float | None]:
    return (None, None) if found is None else (found.low, found.high)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{fixed(100 * share)}%"
