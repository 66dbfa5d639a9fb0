"""Known answers of the checks that compare with a reference."""

from __future__ import annotations

import re
import subprocess
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edison_ci.checks import language, similarity
from edison_ci.checks.evaluation import EvaluationError
from edison_ci.extras import install_command
from tests.checks.answers import graded, score
from tests.timing import within

CAT, MAT = "the cat sat on the mat", "the cat is on the mat"
FOX, LOG = "The quick brown fox, jumps over the lazy dog!", "A quick brown dog jumps on the log."

SIMILARITIES = [
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
]


def test_known_answers(subtests: pytest.Subtests) -> None:
    for line, text, reference, expected in SIMILARITIES:
        with subtests.test(line=line, text=text, reference=reference):
            assert score(line, text, expected=reference) == pytest.approx(expected, abs=1e-6)


def test_a_reference_that_is_no_text_is_compared_as_json() -> None:
    assert score("overlap:", "3", expected=3) == 1
    assert score("levenshtein: '{{ a }}'", '{"b": 1}', a={"b": 1}) == 1


WORDS = st.text(alphabet="ab c.", max_size=30)
MEASURES: dict[str, Any] = {
    "edit": similarity.edit_similarity,
    "rouge_l": similarity.rouge_l,
    "rouge_2": lambda one, other: similarity.rouge_n(one, other, 2),
    "token_f1": similarity.token_f1,
}


@given(WORDS, WORDS)
def test_measures_are_from_0_to_1_and_symmetric(one: str, other: str) -> None:
    for measure in MEASURES.values():
        assert 0 <= measure(one, other) <= 1
        assert measure(one, other) == pytest.approx(measure(other, one))
    assert 0 <= similarity.overlap(one, other) <= 1


@given(WORDS)
def test_a_text_is_like_itself(text: str) -> None:
    words = similarity.split_words(text)
    assert similarity.edit_similarity(text, text) == 1
    assert similarity.token_f1(text, text) == 1
    assert similarity.rouge_l(text, text) == bool(words)
    assert similarity.rouge_n(text, text, 2) == (len(words) > 1)
    assert similarity.overlap(text, text) == bool(text.strip())


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
    assert similarity.rouge_l(" ".join(one), " ".join(other)) == pytest.approx(expected)


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
        ("similar:", "safetensors", "embeddings"),
        ("similar:", "tokenizers", "embeddings"),
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
    for loaded in (similarity._sacrebleu, similarity._model, language._identifier):
        loaded.cache_clear()
    with pytest.raises(EvaluationError, match=re.escape(install_command(extra))):
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
    similarity._sacrebleu.cache_clear()
    try:
        bleu, chrf = graded("bleu:", "a", expected="b"), graded("chrf:", "c", expected="d")
    finally:
        similarity._sacrebleu.cache_clear()
    assert (bleu.score, bleu.reason) == (1.0, "bleu is 1.000 (nrefs:1|version:test)")
    assert chrf.score == 1
    assert asked == [{"effective_order": True}, ("a", ["b"]), {}, ("c", ["d"])]


def test_similar_is_the_same_to_the_last_digit_on_every_machine() -> None:
    assert score("similar:", "the cat sat down", expected="a cat was sitting") == 0.7994883842793518
    assert score("similar:", "Zürich is in 東京, no?", expected="😀 not") == 0.14961603567842416
    assert score("similar:", "hi there", expected="hi there") == 1


def test_similar_is_nothing_below_a_right_angle_and_for_an_empty_text() -> None:
    assert similarity.cosine("a", "b") == -0.12003381296482367
    assert score("similar:", "a", expected="b") == 0
    assert score("similar:", " ", expected="b") == 0


def test_similar_reads_the_weights_of_a_package_whose_code_is_not_run() -> None:
    code = (
        "import sys\n"
        "from edison_ci.checks.similarity import cosine\n"
        "cosine('a', 'b')\n"
        "assert 'tokenizers' in sys.modules\n"
        "assert 'wordllama' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_similar_finds_a_paraphrase_nearer_than_another_subject() -> None:
    near = score("similar:", "the cat sat down", expected="a cat was sitting")
    assert near > 0.5 > score("similar:", "the cat sat down", expected="stock markets fell")
