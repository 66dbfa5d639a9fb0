"""How near is the answer to a reference?"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from edison_ci.checks import measures
from edison_ci.checks.evaluation import Grade
from edison_ci.checks.options import Check, TemplateText, expected_output
from edison_ci.extras import SACREBLEU, SAFETENSORS, TOKENIZERS, WORDLLAMA, Library
from edison_ci.rounding import fixed

if TYPE_CHECKING:
    from edison_ci.checks.evaluation import Answered


class _Similarity(Check):
    graded: ClassVar[bool] = True
    value: TemplateText = expected_output("The reference; the expected output by default.")

    def evaluate(self, answered: Answered) -> Grade:
        """Return how near the answer is to the reference."""
        score = self._score(answered.text, answered.render(self.value))
        return Grade(score, f"{self.check} is {fixed(score, 3)}")

    def _score(self, answer: str, reference: str) -> float:
        raise NotImplementedError


class Levenshtein(_Similarity):
    """Share of characters that need no edit to become the reference."""

    check: ClassVar[str] = "levenshtein"
    example: ClassVar[str] = "levenshtein: {threshold: 0.9}"

    def _score(self, answer: str, reference: str) -> float:
        return measures.edit_similarity(answer.strip(), reference.strip())


class RougeL(_Similarity):
    """ROUGE-L: F1 of the longest common subsequence of words."""

    check: ClassVar[str] = "rouge_l"
    example: ClassVar[str] = "rouge_l: {threshold: 0.4}"

    def _score(self, answer: str, reference: str) -> float:
        return measures.rouge_l(answer, reference)


class RougeN(_Similarity):
    """ROUGE-N: F1 of the word n-grams in common."""

    check: ClassVar[str] = "rouge_n"
    example: ClassVar[str] = "rouge_n: {n: 2, threshold: 0.3}"
    n: int = Field(1, ge=1, le=9, description="Length of the n-grams.")

    def _score(self, answer: str, reference: str) -> float:
        return measures.rouge_n(answer, reference, self.n)


class _Sacrebleu(_Similarity):
    needs: ClassVar[tuple[Library, ...]] = (SACREBLEU,)

    def evaluate(self, answered: Answered) -> Grade:
        """Return sacrebleu's score, with the signature that makes it comparable."""
        reference = answered.render(self.value)
        score, signature = measures.sacrebleu_score(self.check, answered.text, reference)
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
        return measures.token_f1(answer, reference)


class Similar(_Similarity):
    """Cosine similarity of embeddings, made on this machine (extra `embeddings`)."""

    check: ClassVar[str] = "similar"
    needs: ClassVar[tuple[Library, ...]] = (SAFETENSORS, TOKENIZERS, WORDLLAMA)
    example: ClassVar[str] = "similar: {threshold: 0.8}"

    def _score(self, answer: str, reference: str) -> float:
        """Return the cosine of the embeddings; below 0 counts as 0."""
        return min(max(measures.similarity(answer, reference), 0.0), 1.0)


class Overlap(_Similarity):
    """Equal 1.0, reference inside the answer 0.95, else shared words (Jaccard and recall)."""

    check: ClassVar[str] = "overlap"
    example: ClassVar[str] = "overlap: {threshold: 0.7}"

    def _score(self, answer: str, reference: str) -> float:
        return measures.overlap(answer, reference)
