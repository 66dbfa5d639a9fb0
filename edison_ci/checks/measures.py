"""How near are two texts, by which measure?

ROUGE is Lin (2004) without stemming; the words of a text are its runs of letters and digits in
lower case. F1 of words is that of SQuAD (Rajpurkar et al. 2016). BLEU and chrF are sacrebleu's.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Any

from rapidfuzz.distance import LCSseq
from rapidfuzz.distance import Levenshtein as Edits

from edison_ci.checks.embeddings import cosine
from edison_ci.checks.evaluation import EvaluationError, using
from edison_ci.extras import SACREBLEU

if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST_PAIRS = 2_000_000_000
"""Of characters or words to compare: some tenths of a second."""
_MOST_CHARACTERS = 1_000_000
_FIRST_LETTER = 0x10000
"""Beyond it are a million letters, and no more words in two texts of the greatest length."""
_LONGEST_FOR_LIBRARIES = 200_000
_WORD = re.compile(r"[^\W_]+")
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def _refuse(answer: Sequence[object], reference: Sequence[object], what: str) -> None:
    if len(answer) * len(reference) > _MOST_PAIRS:
        sizes = f"{len(answer):,} and {len(reference):,} {what}"
        raise EvaluationError(f"answer and reference are too long to compare: {sizes}")


def _refuse_long(answer: str, reference: str, most: int) -> None:
    if len(answer) > most or len(reference) > most:
        sizes = f"{len(answer):,} and {len(reference):,} characters; at most {most:,} each"
        raise EvaluationError(f"answer and reference are too long to compare: {sizes}")


def _f1(common: int, answer: int, reference: int) -> float:
    return 2 * common / (answer + reference) if common else 0.0


def edit_similarity(answer: str, reference: str) -> float:
    """Return 1 - edits / length of the longer text; two empty texts are equal."""
    _refuse(answer, reference, "characters")
    return float(Edits.normalized_similarity(answer, reference))


def words_of(text: str) -> list[str]:
    """Return the runs of letters and digits in lower case."""
    return _WORD.findall(text.lower())


def rouge_l(answer: str, reference: str) -> float:
    """Return the F1 of the longest common subsequence of words."""
    _refuse_long(answer, reference, _MOST_CHARACTERS)
    one, other = words_of(answer), words_of(reference)
    _refuse(one, other, "words")
    letters: dict[str, str] = {}  # a letter for each word: texts compare ten times as fast as lists
    spelled = ["".join([_letter(word, letters) for word in words]) for words in (one, other)]
    return _f1(int(LCSseq.similarity(*spelled)), len(one), len(other))


def _letter(word: str, letters: dict[str, str]) -> str:
    found = letters.get(word)
    if found is None:
        found = letters[word] = chr(_FIRST_LETTER + len(letters))
    return found


def rouge_n(answer: str, reference: str, n: int) -> float:
    """Return the F1 of the word n-grams in common, each counted as often as both have it."""
    _refuse_long(answer, reference, _MOST_CHARACTERS)
    one, other = _grams(words_of(answer), n), _grams(words_of(reference), n)
    return _f1((one & other).total(), one.total(), other.total())


def _grams(words: list[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(zip(*(words[start:] for start in range(n)), strict=False))


def token_f1(answer: str, reference: str) -> float:
    """Return the F1 of words without case, punctuation and articles; two empty texts are equal."""
    _refuse_long(answer, reference, _MOST_CHARACTERS)
    one, other = Counter(_squad(answer)), Counter(_squad(reference))
    if not one or not other:
        return float(one == other)
    return _f1((one & other).total(), one.total(), other.total())


def _squad(text: str) -> list[str]:
    return _ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split()


def overlap(answer: str, reference: str) -> float:
    """Return 1 if equal, 0.95 if the reference is inside, else 0.3 Jaccard + 0.7 recall of words.

    Without case and surrounding blanks; 0 if either side is empty.
    """
    answer, reference = answer.strip().lower(), reference.strip().lower()
    if not answer or not reference:
        return 0.0
    if answer == reference:
        return 1.0
    if reference in answer:
        return 0.95
    _refuse_long(answer, reference, _MOST_CHARACTERS)
    one, other = set(answer.split()), set(reference.split())
    common = len(one & other)
    return 0.3 * common / len(one | other) + 0.7 * common / len(other)


# --- measures of other libraries ------------------------------------------------------------------


@cache
def _sacrebleu(name: str) -> Any:
    with using(SACREBLEU):
        from sacrebleu.metrics.bleu import BLEU  # an extra, and 0.3 s
        from sacrebleu.metrics.chrf import CHRF
    return BLEU(effective_order=True) if name == "bleu" else CHRF()


def sacrebleu_score(name: str, answer: str, reference: str) -> tuple[float, str]:
    """Return a score of sacrebleu from 0 to 1, and the signature that says how it was computed."""
    metric = _sacrebleu(name)
    _refuse_long(answer, reference, _LONGEST_FOR_LIBRARIES)
    score = metric.sentence_score(answer, [reference]).score / 100
    return min(max(score, 0.0), 1.0), str(metric.get_signature())


def similarity(answer: str, reference: str) -> float:
    """Return the cosine of the embeddings of two texts; an empty one is like no other."""
    _refuse_long(answer, reference, _LONGEST_FOR_LIBRARIES)
    if not answer.strip() or not reference.strip():
        return 0.0
    return cosine(_whole(answer), _whole(reference))


def _whole(text: str) -> str:
    """Return a text without halves of characters, which the tokenizer does not take."""
    return text.encode("utf-8", "replace").decode()
