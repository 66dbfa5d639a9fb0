"""How does a simulated judge score a question?

From the text alone: whether something is asked, how long it is, whether it talks about what the
objective talks about, and how many of its words are unusual. Enough to try the command with, and
no more: a real judge reads.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from edison_ci.providers.sim.exhibit import Seen, clamped
from edison_ci.providers.sim.knowledge import MAX_CHARS, strings_in
from edison_ci.providers.sim.writing import words_of
from edison_ci.rounding import mean, rounded

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from random import Random

    from edison_ci.providers.sim.judge import Criterion
    from edison_ci.records import Json

_ASKS = re.compile(
    r"\?|\b(?:how|what|when|where|why|which|can|could|please|write|return|extract|give|say)\b", re.I
)
_TRICKS = re.compile(r"ignore|disregard|system|instead|not |never|except|unless|only if", re.I)
_FEW, _MANY = 3, 200


def question_scores(
    inputs: Mapping[str, Json],
    objective: str,
    criteria: Sequence[Criterion],
    rng: Random,
    *,
    noise: float,
) -> str:
    """Return the reply of the simulated judge of questions."""
    text = " ".join(strings_in(dict(inputs)))[:MAX_CHARS]
    seen = _seen(text, objective)
    scores = {}
    for criterion in criteria:
        value, remark = _found(criterion.name, seen)
        share = clamped(value + rng.gauss(0.0, noise))
        width = criterion.maximum - criterion.minimum
        score = rounded(criterion.minimum + width * share, 0 if width > 1 else 1)
        scores[criterion.name] = {"reason": remark, "score": score}
    return json.dumps({"scores": scores}, ensure_ascii=False)


def _seen(text: str, objective: str) -> dict[str, Seen]:
    words = words_of(text)
    count, known = len(words), {word for word in words_of(objective) if len(word) > 3}
    long = {word for word in words if len(word) > 7}
    shared = len(known & set(words))
    tricks = len(_TRICKS.findall(text))
    if count < _FEW:
        clarity = Seen(0.1, f"{count} words say hardly anything")
    elif _ASKS.search(text):
        clarity = Seen(0.85 if count <= _MANY else 0.6, f"something is asked, in {count} words")
    else:
        clarity = Seen(0.5, "nothing is asked outright")
    found = {
        "clarity": clarity,
        "difficulty": Seen(
            clamped(0.15 + count / 250 + 0.12 * tricks), f"{count} words, {tricks} catches"
        ),
        "relevance": Seen(
            clamped(0.45 + 0.12 * shared), f"shares {shared} words with the objective"
        ),
        "originality": Seen(
            clamped(0.25 + 0.03 * len(long) + 0.1 * tricks), f"{len(long)} unusual words"
        ),
    }
    overall = mean([found[name].value for name in ("clarity", "relevance", "originality")])
    found["overall"] = Seen(overall, "as clear, relevant and original as that")
    return found


def _found(name: str, seen: Mapping[str, Seen]) -> Seen:
    """Return what is seen of a criterion; of one that nobody knows, what is seen of the whole."""
    return seen.get(name.lower().strip(), seen["overall"])
