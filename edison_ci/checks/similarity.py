"""How near is the answer to a reference?"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from edison_ci.checks.options import Check, TemplateText, expected_output
from edison_ci.shape import Name


class _Similarity(Check):
    graded: ClassVar[bool] = True
    value: TemplateText = expected_output("The reference; the expected output by default.")


class Levenshtein(_Similarity):
    """Share of characters that need no edit to become the reference."""

    check: ClassVar[str] = "levenshtein"
    example: ClassVar[str] = "levenshtein: {threshold: 0.9}"


class RougeL(_Similarity):
    """ROUGE-L: F1 of the longest common subsequence of words."""

    check: ClassVar[str] = "rouge_l"
    example: ClassVar[str] = "rouge_l: {threshold: 0.4}"


class RougeN(_Similarity):
    """ROUGE-N: F1 of the word n-grams in common."""

    check: ClassVar[str] = "rouge_n"
    example: ClassVar[str] = "rouge_n: {n: 2, threshold: 0.3}"
    n: int = Field(1, ge=1, le=9, description="Length of the n-grams.")


class Bleu(_Similarity):
    """BLEU against the reference, as sacrebleu computes it."""

    check: ClassVar[str] = "bleu"
    example: ClassVar[str] = "bleu: {threshold: 0.3}"


class Chrf(_Similarity):
    """chrF against the reference, as sacrebleu computes it."""

    check: ClassVar[str] = "chrf"
    example: ClassVar[str] = "chrf: {threshold: 0.5}"


class TokenF1(_Similarity):
    """F1 of the words in common, as in question answering."""

    check: ClassVar[str] = "token_f1"
    example: ClassVar[str] = "token_f1: {threshold: 0.6}"


class Similar(_Similarity):
    """Cosine similarity of embeddings (extra `embeddings`, or an embedding model)."""

    check: ClassVar[str] = "similar"
    example: ClassVar[str] = "similar: {threshold: 0.8}"
    by: Name | None = Field(None, description="Embedding model from models.yaml; local by default.")


class Overlap(_Similarity):
    """Equal 1.0, reference inside the answer 0.95, else shared words (Jaccard and recall)."""

    check: ClassVar[str] = "overlap"
    example: ClassVar[str] = "overlap: {threshold: 0.7}"
