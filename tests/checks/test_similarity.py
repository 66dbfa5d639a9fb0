"""Known answers of the checks that compare with a reference."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edison_ci.checks import measures
from edison_ci.checks.evaluation import EvaluationError
from tests.checks.answers import graded, score
from tests.timing import within

CAT, MAT = "the cat sat on the mat", "the cat is on the mat"
FOX, LOG = "The quick brown fox, jumps over the lazy dog!", "A quick brown dog jumps on the log."


@pytest.mark.parametrize(
    ("line", "text", "reference", "expected"),
    [
        ("levenshtein:", "kitten", "sitting", 1 - 3 / 7),
        ("levenshtein:", " same \n", "same", 1),
        ("levenshtein:", "", "abc", 0),
        ("levenshtein:", "", "", 1),
        # ROUGE as rouge-score 0.1.2 computes it without stemming
        ("rouge_l:", CAT, MAT, 5 / 6),
        ("rouge_l:", "police kill the gunman", "police killed the gunman", 0.75),
        ("rouge_l:", FOX, LOG, 0.470588),
        ("rouge_l:", "b a", "a b", 0.5),
        ("rouge_l:", "", "a", 0),
        ("rouge_l:", "a", "", 0),
        ("rouge_n:", CAT, MAT, 5 / 6),
        ("rouge_n: {n: 2}", CAT, MAT, 0.6),
        ("rouge_n:", FOX, LOG, 0.588235),
        ("rouge_n: {n: 2}", FOX, LOG, 0.133333),
        ("rouge_n: {n: 2}", "a", "a", 0),
        ("rouge_n:", "a a a", "a", 0.5),
        # SQuAD: no articles, no punctuation, no case
        ("token_f1:", CAT, MAT, 0.75),
        ("token_f1:", "The Norman dynasty.", "norman dynasty", 1),
        ("token_f1:", "in the year 1066", "1066", 0.5),
        ("token_f1:", "the", "a", 1),
        ("token_f1:", "the", "x", 0),
        ("token_f1:", "x x b", "b b b", 1 / 3),
        # SPEC: equal, inside, 0.3 Jaccard + 0.7 recall, empty
        ("overlap:", " Oslo ", "oslo", 1),
        ("overlap:", "It is Oslo.", "oslo", 0.95),
        ("overlap:", "a b c", "b d", 0.3 * 1 / 4 + 0.7 * 1 / 2),
        ("overlap:", "a b", "c d", 0),
        ("overlap:", "", "c", 0),
        ("overlap:", "c", " ", 0),
        ("overlap:", "", "", 0),
    ],
)
def test_known_answers(line: str, text: str, reference: str, expected: float) -> None:
    assert score(line, text, expected=reference) == pytest.approx(expected, abs=1e-6)


def test_a_reference_that_is_no_text_is_compared_as_json() -> None:
    assert score("overlap:", "3", expected=3) == 1
    assert score("levenshtein: '{{ a }}'", '{"b": 1}', a={"b": 1}) == 1


WORDS = st.text(alphabet="ab c.", max_size=30)
MEASURES: dict[str, Any] = {
    "edit": measures.edit_similarity,
    "rouge_l": measures.rouge_l,
    "rouge_2": lambda one, other: measures.rouge_n(one, other, 2),
    "token_f1": measures.token_f1,
}


@given(WORDS, WORDS)
def test_measures_are_from_0_to_1_and_symmetric(one: str, other: str) -> None:
    for measure in MEASURES.values():
        assert 0 <= measure(one, other) <= 1
        assert measure(one, other) == pytest.approx(measure(other, one))
    assert 0 <= measures.overlap(one, other) <= 1


@given(WORDS)
def test_a_text_is_like_itself(text: str) -> None:
    words = measures.words_of(text)
    assert measures.edit_similarity(text, text) == 1
    assert measures.token_f1(text, text) == 1
    assert measures.rouge_l(text, text) == bool(words)
    assert measures.rouge_n(text, text, 2) == (len(words) > 1)
    assert measures.overlap(text, text) == bool(text.strip())


@given(st.lists(st.sampled_from("abc"), max_size=12), st.lists(st.sampled_from("abc"), max_size=12))
def test_the_longest_common_subsequence_is_that_of_the_textbook(
    one: list[str], other: list[str]
) -> None:
    table = [[0] * (len(other) + 1) for _ in range(len(one) + 1)]
    for i, a in enumerate(one):
        for j, b in enumerate(other):
            table[i + 1][j + 1] = (
                table[i][j] + 1 if a == b else max(table[i][j + 1], table[i + 1][j])
            )
    common = table[-1][-1]
    expected = 2 * common / (len(one) + len(other)) if common else 0
    assert measures.rouge_l(" ".join(one), " ".join(other)) == pytest.approx(expected)


@pytest.mark.parametrize("line", ["levenshtein:", "rouge_l:", "rouge_n: {n: 9}", "token_f1:"])
def test_long_texts_are_compared_soon_or_refused(line: str) -> None:
    with within(5):
        assert score(line, "word " * 4_000, expected="word " * 3_000 + "x " * 1_000) > 0.5
    with within(5), pytest.raises(EvaluationError, match="too long to compare"):
        graded(line, "word " * 400_000, expected="other " * 150_000)


# --- measures of other libraries ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "module", "extra"),
    [
        ("bleu:", "sacrebleu", "metrics"),
        ("chrf:", "sacrebleu", "metrics"),
        ("similar:", "wordllama", "embeddings"),
        ("language: en", "py3langid", "metrics"),
    ],
)
def test_a_missing_library_is_an_error_that_names_the_extra(
    line: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    measures._sacrebleu.cache_clear()
    measures._embedder.cache_clear()
    with pytest.raises(EvaluationError, match=rf"pip install 'edison-ci\[{extra}\]'"):
        graded(line, "hello there", expected="hello")


@pytest.mark.parametrize(("line", "expected"), [("bleu:", 0.3799178), ("chrf:", 0.6457794)])
def test_bleu_and_chrf_are_those_of_sacrebleu(line: str, expected: float) -> None:
    grade = graded(line, CAT, expected=MAT)
    assert grade.score == pytest.approx(expected)
    assert "nrefs:1|case:mixed" in grade.reason
    assert score(line, MAT, expected=MAT) == 1
    assert score(line, "", expected=MAT) == 0


def test_sacrebleu_is_asked_for_sentences_and_its_signature(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []

    class Metric:
        def __init__(self, **options: Any) -> None:
            asked.append(options)

        def sentence_score(self, answer: str, references: list[str]) -> SimpleNamespace:
            asked.append((answer, references))
            return SimpleNamespace(score=100.00000000000004)

        def get_signature(self) -> str:
            return "nrefs:1|version:test"

    module = ModuleType("stand-in")
    module.BLEU = module.CHRF = Metric  # type: ignore[attr-defined]  # a stand-in
    for name in ("sacrebleu.metrics.bleu", "sacrebleu.metrics.chrf"):
        monkeypatch.setitem(sys.modules, name, module)
    measures._sacrebleu.cache_clear()
    try:
        bleu, chrf = graded("bleu:", "a", expected="b"), graded("chrf:", "c", expected="d")
    finally:
        measures._sacrebleu.cache_clear()
    assert (bleu.score, bleu.reason) == (1.0, "bleu is 1.000 (nrefs:1|version:test)")
    assert chrf.score == 1
    assert asked == [{"effective_order": True}, ("a", ["b"]), {}, ("c", ["d"])]


@pytest.mark.parametrize(("cosine", "expected"), [(0.5, 0.5), (-0.2, 0.0), (1.0000001, 1.0)])
def test_similar_is_the_cosine_of_a_model_that_is_never_downloaded(
    cosine: float, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[dict[str, Any]] = []

    class WordLlama:
        @classmethod
        def load(cls, **options: Any) -> WordLlama:
            loaded.append(options)
            return cls()

        def similarity(self, one: str, other: str) -> float:
            return cosine

    module = ModuleType("wordllama")
    module.__file__ = "/somewhere/wordllama/__init__.py"
    module.WordLlama = WordLlama  # type: ignore[attr-defined]  # a stand-in
    monkeypatch.setitem(sys.modules, "wordllama", module)
    measures._embedder.cache_clear()
    try:
        assert score("similar:", "a", expected="b") == expected
        assert score("similar:", "", expected="b") == 0
    finally:
        measures._embedder.cache_clear()
    assert [str(options.pop("cache_dir")) for options in loaded] == ["/somewhere/wordllama"]
    assert loaded == [{"disable_download": True}]


def test_similar_finds_a_paraphrase_nearer_than_another_subject() -> None:
    near = score("similar:", "the cat sat down", expected="a cat was sitting")
    assert near > 0.5 > score("similar:", "the cat sat down", expected="stock markets fell")
