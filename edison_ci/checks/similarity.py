"""Checks of similarity to a reference, and their measures."""

from __future__ import annotations

import math
import re
import string
from array import array
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

from pydantic import Field
from rapidfuzz import process
from rapidfuzz.distance import Indel, LCSseq
from rapidfuzz.distance import Levenshtein as Edits

from edison_ci.checks.embeddings import cosine_of_vectors, unpack_vector
from edison_ci.checks.evaluation import EvaluationError, Grade, library_errors
from edison_ci.checks.options import Check, TemplateText, TrimmedCheck, expected_output
from edison_ci.extras import SACREBLEU, SAFETENSORS, TOKENIZERS, WORDLLAMA, Library
from edison_ci.numeric import fixed
from edison_ci.shape import Name
from edison_ci.stats.arrays import np
from edison_ci.templating.templates import MissingValueError, RenderError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy import float16, float64
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

    from edison_ci.checks.evaluation import ParsedAnswer


# Weights and tokenizer are files of the package `wordllama`, whose own code is never imported: its
# newer releases are compiled and have no wheel for ARM64 Linux or Python 3.14, while 0.2.2 is one
# wheel for every machine, with the same weights. A text is the mean of the vectors of its tokens.
_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"
_WEIGHTS = "weights/l2_supercat_256.safetensors"


class _Model(NamedTuple):
    tokenizer: Tokenizer
    weights: NDArray[float16]
    """A row for each token."""

    def vector(self, text: str) -> NDArray[float64]:
        """Return the sum of the vectors of the tokens: the direction is that of their mean."""
        ids = self.tokenizer.encode(text, add_special_tokens=False).ids
        # Half-precision numbers have so few digits that double precision adds them up without
        # rounding: the sum does not depend on its order, nor on the machine.
        total: NDArray[float64] = self.weights[ids].sum(axis=0, dtype="float64")
        return total


@cache
def _model() -> _Model:
    with library_errors(SAFETENSORS):
        from safetensors.numpy import load_file
    with library_errors(TOKENIZERS):
        from tokenizers import Tokenizer
    with library_errors(WORDLLAMA):
        folder = WORDLLAMA.folder()
        tokenizer = Tokenizer.from_file(str(folder / _TOKENIZER))
        return _Model(tokenizer, load_file(folder / _WEIGHTS)["embedding.weight"])


def cosine(text: str, other: str) -> float:
    """Return the cosine of the embeddings of two texts; 0 if a vector is zero."""
    model = _model()
    a, b = model.vector(text), model.vector(other)
    length = math.sqrt(_dot(a, a) * _dot(b, b))
    return _dot(a, b) / length if length else 0.0


_STACKED_AT_ONCE = 100


class Meanings:
    """Texts that others are compared with by meaning, if the extra `embeddings` is installed."""

    def __init__(self) -> None:
        self.available = not any(
            library.fault() for library in (SAFETENSORS, TOKENIZERS, WORDLLAMA)
        )
        self._vectors: list[NDArray[float64]] = []
        self._stacked: NDArray[float64] | None = None

    def add(self, text: str) -> None:
        """Remember a text."""
        if self.available:
            self._vectors.append(self._unit(text))

    def similar(self, text: str, at_least: float) -> set[int]:
        """Return the places of remembered texts whose cosine is at least this."""
        if not self.available or not self._vectors:
            return set()
        # Stacked again for each hundred vectors; the few since then are compared one by one.
        if self._stacked is None or len(self._vectors) - len(self._stacked) > _STACKED_AT_ONCE:
            self._stacked = np.stack(self._vectors)
        here, start = self._unit(text), len(self._stacked)
        places = {int(place) for place in np.flatnonzero(self._stacked @ here >= at_least)}
        late = enumerate(self._vectors[start:], start)
        return places | {place for place, vector in late if float(vector @ here) >= at_least}

    @staticmethod
    def _unit(text: str) -> NDArray[float64]:
        vector = _model().vector(_whole(text))
        length = math.sqrt(_dot(vector, vector))
        return vector / length if length else vector


def _dot(a: NDArray[float64], b: NDArray[float64]) -> float:
    # Not `a @ b`: the order in which a library adds depends on the machine.
    return math.fsum((a * b).tolist())


# ROUGE is Lin (2004) without stemming; the words of a text are its runs of letters and digits in
# lower case. F1 of words is that of SQuAD (Rajpurkar et al. 2016). BLEU and chrF are sacrebleu's.
_MOST_PAIRS = 2_000_000_000
"""Pairs of characters or words to compare: some tenths of a second."""
_MOST_CHARACTERS = 1_000_000
_FIRST_LETTER = 0x10000
"""Above it are a million characters, more than two texts of maximum length have words."""
_LETTERS = 0x110000 - _FIRST_LETTER
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


class NearTexts:
    """Texts that others are compared with by the share of words in common, in order."""

    def __init__(self) -> None:
        self._letters: dict[str, str] = {}
        self._texts: list[str] = []

    def add(self, text: str) -> None:
        """Remember a text."""
        self._texts.append(self._spelled(text))

    def similar(self, text: str, at_least: float) -> set[int]:
        """Return the places of remembered texts that are at least this similar."""
        matches = process.extract(
            self._spelled(text),
            self._texts,
            scorer=Indel.normalized_similarity,
            score_cutoff=at_least,
            limit=None,
        )
        return {place for _, _, place in matches}

    def _spelled(self, text: str) -> str:
        return "".join([_letter(word, self._letters) for word in split_words(text)])


def split_words(text: str) -> list[str]:
    """Return the runs of letters and digits in lower case."""
    return _WORD.findall(text.lower())


def rouge_l(answer: str, reference: str) -> float:
    """Return the F1 of the longest common subsequence of words."""
    _refuse_long(answer, reference, _MOST_CHARACTERS)
    first, second = split_words(answer), split_words(reference)
    _refuse(first, second, "words")
    letters: dict[
        str, str
    ] = {}  # one character for each word: strings compare ten times as fast as lists
    spelled = ["".join([_letter(word, letters) for word in words]) for words in (first, second)]
    return _f1(int(LCSseq.similarity(*spelled)), len(first), len(second))


def _letter(word: str, letters: dict[str, str]) -> str:
    letter = letters.get(word)
    if letter is None:
        letter = letters[word] = chr(_FIRST_LETTER + len(letters) % _LETTERS)
    return letter


def rouge_n(answer: str, reference: str, n: int) -> float:
    """Return the F1 of common word n-grams, counted with multiplicity."""
    _refuse_long(answer, reference, _MOST_CHARACTERS)
    grams, other = _grams(split_words(answer), n), _grams(split_words(reference), n)
    return _f1((grams & other).total(), grams.total(), other.total())


def _grams(words: list[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(zip(*(words[start:] for start in range(n)), strict=False))


def token_f1(answer: str, reference: str) -> float:
    """Return the F1 of words without case, punctuation and articles; two empty texts are equal."""
    _refuse_long(answer, reference, _MOST_CHARACTERS)
    words, other = Counter(_squad(answer)), Counter(_squad(reference))
    if not words or not other:
        return float(words == other)
    return _f1((words & other).total(), words.total(), other.total())


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
    words, other = set(answer.split()), set(reference.split())
    common = len(words & other)
    return 0.3 * common / len(words | other) + 0.7 * common / len(other)


@cache
def _sacrebleu(name: str) -> Any:
    with library_errors(SACREBLEU):
        from sacrebleu.metrics.bleu import BLEU  # an extra, and slow to load (0.3 s)
        from sacrebleu.metrics.chrf import CHRF
    return BLEU(effective_order=True) if name == "bleu" else CHRF()


def sacrebleu_score(name: str, answer: str, reference: str) -> tuple[float, str]:
    """Return a score of sacrebleu from 0 to 1, and its signature."""
    metric = _sacrebleu(name)
    _refuse_long(answer, reference, _LONGEST_FOR_LIBRARIES)
    score = metric.sentence_score(answer, [reference]).score / 100
    return min(max(score, 0.0), 1.0), str(metric.get_signature())


def similarity(answer: str, reference: str) -> float:
    """Return the cosine of the embeddings of two texts; 0 if one is empty."""
    return cosine(*texts) if (texts := comparable_texts(answer, reference)) else 0.0


def comparable_texts(answer: str, reference: str) -> tuple[str, str] | None:
    """Return two texts as they are embedded; None if one is empty. Raises EvaluationError."""
    _refuse_long(answer, reference, _LONGEST_FOR_LIBRARIES)
    if not answer.strip() or not reference.strip():
        return None
    return _whole(answer), _whole(reference)


def _whole(text: str) -> str:
    """Return a text without lone surrogates, which the tokenizer does not accept."""
    return text.encode("utf-8", "replace").decode()


class _Similarity(Check):
    graded: ClassVar[bool] = True
    value: TemplateText = expected_output("The reference; the expected output by default.")

    def evaluate(self, answered: ParsedAnswer) -> Grade:
        """Return the similarity of the answer to the reference."""
        score = self._score(answered.text, answered.render(self.value))
        return Grade(score, f"{self.check} is {fixed(score, 3)}")

    def _score(self, answer: str, reference: str) -> float:
        raise NotImplementedError


class Levenshtein(_Similarity, TrimmedCheck):
    """Share of characters that need no edit to become the reference."""

    check: ClassVar[str] = "levenshtein"
    example: ClassVar[str] = "levenshtein: {threshold: 0.9}"
    max_edits: Annotated[int, Field(ge=0, le=1_000_000)] | None = Field(
        None,
        description="Most insertions, deletions and substitutions; the score is then 1 or 0. An "
        "emoji counts as two characters.",
    )

    def _score(self, answer: str, reference: str) -> float:
        if not self.exact:
            answer, reference = answer.strip(), reference.strip()
        if self.max_edits is None:
            return edit_similarity(answer, reference)
        _refuse(answer, reference, "characters")
        units, other = _utf16(answer), _utf16(reference)
        return float(Edits.distance(units, other, score_cutoff=self.max_edits) <= self.max_edits)


def _utf16(text: str) -> str:
    """Return a text whose characters are its UTF-16 units, as JavaScript counts them."""
    if text.isascii() or max(text) <= "\uffff":
        return text
    units = array("H", text.encode("utf-16-le", "surrogatepass"))
    return "".join(map(chr, units))


class RougeL(_Similarity):
    """ROUGE-L: F1 of the longest common subsequence of words."""

    check: ClassVar[str] = "rouge_l"
    example: ClassVar[str] = "rouge_l: {threshold: 0.4}"

    def _score(self, answer: str, reference: str) -> float:
        return rouge_l(answer, reference)


class RougeN(_Similarity):
    """ROUGE-N: F1 of the word n-grams in common."""

    check: ClassVar[str] = "rouge_n"
    example: ClassVar[str] = "rouge_n: {n: 2, threshold: 0.3}"
    n: int = Field(1, ge=1, le=9, description="Length of the n-grams.")

    def _score(self, answer: str, reference: str) -> float:
        return rouge_n(answer, reference, self.n)


class _Sacrebleu(_Similarity):
    needs: ClassVar[tuple[Library, ...]] = (SACREBLEU,)

    def evaluate(self, answered: ParsedAnswer) -> Grade:
        """Return the score of sacrebleu, with its signature in the reason."""
        reference = answered.render(self.value)
        score, signature = sacrebleu_score(self.check, answered.text, reference)
        return Grade(score, f"{self.check} is {fixed(score, 3)} ({signature})")


class Bleu(_Sacrebleu):
    """BLEU against the reference, as sacrebleu computes it."""

    check: ClassVar[str] = "bleu"
    example: ClassVar[str] = "bleu: {threshold: 0.3}"


class Chrf(_Sacrebleu):
    """chrF against the reference, as sacrebleu computes it."""

    check: ClassVar[str] = "chrf"
    example: ClassVar[str] = "chrf: {threshold: 0.5}"


class TokenF1(_Similarity):
    """F1 of the words in common, as in question answering."""

    check: ClassVar[str] = "token_f1"
    example: ClassVar[str] = "token_f1: {threshold: 0.6}"

    def _score(self, answer: str, reference: str) -> float:
        return token_f1(answer, reference)


class Similar(_Similarity):
    """Cosine similarity of embeddings, made on this machine (extra `embeddings`) or by a model."""

    check: ClassVar[str] = "similar"
    needs: ClassVar[tuple[Library, ...]] = (SAFETENSORS, TOKENIZERS, WORDLLAMA)
    example: ClassVar[str] = "similar: {threshold: 0.8}"
    by: Name | None = Field(
        None, description="Model of models.yaml that embeds; on this machine by default."
    )

    @property
    def libraries(self) -> tuple[Library, ...]:
        """The libraries that it needs: none if a model embeds."""
        return self.needs if self.by is None else ()

    def texts_to_embed(self, answered: ParsedAnswer) -> Iterator[tuple[str, str]]:
        """Yield the answer and the reference, unless there is nothing to compare."""
        if self.by is None:
            return
        try:
            texts = comparable_texts(answered.text, answered.render(self.value))
        except (MissingValueError, RenderError, EvaluationError):
            return  # `evaluate` has the same problem, and reports it
        for text in texts or ():
            yield self.by, text

    def evaluate(self, answered: ParsedAnswer) -> Grade:
        """Return the cosine of the embeddings; negative values count as 0."""
        reference = answered.render(self.value)
        if self.by is None:
            cosine_of_texts = similarity(answered.text, reference)
        else:
            texts = comparable_texts(answered.text, reference)
            vectors = [_vector(answered, self.by, text) for text in texts or ()]
            cosine_of_texts = cosine_of_vectors(*vectors) if vectors else 0.0
        score = min(max(cosine_of_texts, 0.0), 1.0)
        return Grade(score, f"{self.check} is {fixed(score, 3)}")


def _vector(answered: ParsedAnswer, by: str, text: str) -> tuple[float, ...]:
    stored = answered.embeddings.get((by, text), EvaluationError(f"{by} was not called"))
    if isinstance(stored, EvaluationError):
        raise stored
    return unpack_vector(stored)


class Overlap(_Similarity):
    """Equal 1.0, reference inside the answer 0.95, else shared words (Jaccard and recall)."""

    check: ClassVar[str] = "overlap"
    example: ClassVar[str] = "overlap: {threshold: 0.7}"

    def _score(self, answer: str, reference: str) -> float:
        return overlap(answer, reference)
