from __future__ import annotations

import ast
import json
from random import Random

import pytest

from benchmarks.sim import NAMES, every_instruction
from edison_ci.errors import UsageError
from edison_ci.features.simulator import assignment, tasks
from edison_ci.features.simulator.options import SimOptions
from edison_ci.features.simulator.provider import generate
from edison_ci.records import FinishReason, Message, Request
from tests.features.simulator.conftest import PARAMS, answer, asked, example, request

pytestmark = pytest.mark.daily


@pytest.mark.parametrize("name", NAMES)
def test_a_rerun_is_identical(name: str) -> None:
    project = example(name)
    for case in project.cases[::5]:
        call = asked(project.prompt, case)
        assert generate(call) == generate(call, SimOptions())


@pytest.mark.parametrize("name", NAMES)
def test_repeats_seeds_and_models_differ(name: str) -> None:
    project = example(name)
    texts = {
        variant: [generate(call, SimOptions(seed=seed)).text for call in calls]
        for variant, (calls, seed) in {
            "first": ([asked(project.prompt, case) for case in project.cases], 0),
            "second repeat": ([asked(project.prompt, case, repeat=1) for case in project.cases], 0),
            "other seed": ([asked(project.prompt, case) for case in project.cases], 1),
            "large": ([asked(project.prompt, case, model="large") for case in project.cases], 0),
        }.items()
    }
    first = texts.pop("first")
    for other in texts.values():
        same = sum(one == two for one, two in zip(first, other, strict=True))
        assert same < 0.6 * len(first)


@pytest.mark.parametrize("model", ["small", "large"])
def test_every_answer_is_labelled_as_simulated(model: str) -> None:
    for said in ("", "Write a story.", "Write a reply to this customer.", "Hello"):
        completion = generate(request(said, model=model))
        assert completion.served_model == f"sim/{model}"
        assert completion.tokens_in is not None and completion.tokens_out is not None


def test_an_unknown_model_is_refused() -> None:
    with pytest.raises(UsageError, match="medium"):
        generate(request("hello", model="medium"))


def test_large_is_slower_and_longer() -> None:
    project = example("customer-support")
    prompt = every_instruction(project)  # so that nobody pads
    totals = {}
    for model in ("small", "large"):
        made = [generate(asked(prompt, case, model=model)) for case in project.cases]
        totals[model] = (
            sum(completion.latency_ms for completion in made),
            sum(completion.tokens_out or 0 for completion in made),
        )
    assert totals["large"][0] > 1.5 * totals["small"][0]
    assert totals["large"][1] > totals["small"][1]


def test_the_latency_option_replaces_the_models_own_pace() -> None:
    times = [
        generate(request(f"hello {n}"), SimOptions(latency_ms=50)).latency_ms for n in range(200)
    ]
    assert 45 < sum(times) / len(times) < 57


def test_an_answer_is_cut_at_max_tokens() -> None:
    project = example("creative-writing")
    call = request(asked(project.prompt, project.cases[0]).messages[1].content, max_tokens=12)
    completion = generate(call)
    assert completion.finish_reason is FinishReason.LENGTH
    assert completion.tokens_out is not None and completion.tokens_out <= 12


def test_refusals_and_empty_answers_are_rare_but_happen() -> None:
    project = example("customer-support")
    texts = [
        answer(project.prompt, case, repeat=repeat).text
        for case in project.cases
        for repeat in range(12)
    ]
    empty = sum(text == "" for text in texts) / len(texts)
    refused = sum(len(text) < 50 and "\n" not in text for text in texts) / len(texts) - empty
    assert 0 < empty < 0.012
    assert 0 < refused < 0.025


def test_a_higher_temperature_raises_the_variance_between_repeats() -> None:
    project = example("code-generation")

    def distinct(temperature: float) -> int:
        texts = set()
        for case in project.cases[::2]:
            said = asked(project.prompt, case).messages
            for repeat in range(4):
                params = {**PARAMS, "temperature": temperature}
                call = Request("sim", "", "small", said, params, repeat=repeat)
                texts.add((case.id, generate(call).text))
        return len(texts)

    assert distinct(0.0) < distinct(1.0) < distinct(2.0)


def test_answers_of_a_run_are_all_different() -> None:
    for name in ("customer-support", "creative-writing"):
        project = example(name)
        texts = [text for c in project.cases if (text := answer(project.prompt, c).text)]
        assert len(set(texts)) >= len(texts) - 1


def test_response_tags_are_honoured() -> None:
    completion = generate(request("Write a story inside <response> tags.\n\nBrief: A cat."))
    assert completion.text.startswith("<response>") and completion.text.endswith("</response>")


# --- cases nobody knows --------------------------------------------------------------------------

SUPPORT = (
    "Write a reply to this customer.\n"
    "Name the exact fact from the policy. Say what happens next. Leave no placeholders.\n\n"
    "Customer: Eva\nMessage: My new chain snapped on day two.\n"
    "Shop policy: Defects are repaired free of charge within 14 days at Dock Road 5."
)
STORY = (
    "Write a story. Use all the words exactly as given. Keep to 60 to 180 words.\n\n"
    "Brief: A postman finds a letter to himself.\nGenre: mystery\nTone: quiet\n"
    "Words: bicycle, chestnut"
)
INVOICE = (
    "Extract the vendor, invoice number, date, currency and total from this document.\n"
    "Return only the JSON object. Use exactly these keys: vendor, invoice_number, date, currency, "
    "total. Dates as YYYY-MM-DD, the total as a plain number, the currency as a three-letter code, "
    "the grand total with tax, the document's own number.\n\n"
    "Blackbird Books Ltd\nInvoice BB-2210\n14 March 2025\n\nAtlas 30.00\nVAT 6.00\nTotal £36.00"
)
CODE = (
    "Write Python code for double_all: Double every number in a list.\n"
    "Answer with a single ```python code block and nothing else. Keep exactly the given name.\n\n"
    "Signature: def double_all(values: list[int]) -> list[int]\n"
    "Examples:\n- double_all([1, 2]) gives [2, 4]\n- double_all([]) gives []\n"
)


def share(said: str, fits: object, *, repeats: int = 60) -> float:
    assert callable(fits)
    texts = [generate(request(said, repeat=repeat)).text for repeat in range(repeats)]
    return sum(bool(fits(text)) for text in texts) / repeats


def test_an_unknown_customer_gets_the_fact_of_the_policy_and_the_own_name() -> None:
    assert share(SUPPORT, lambda text: "14 days" in text and "Eva" in text) > 0.8


def test_an_unknown_brief_becomes_a_story_with_its_words() -> None:
    assert share(STORY, lambda text: "bicycle" in text and "chestnut" in text) > 0.8


def test_an_unknown_invoice_is_read_by_plain_rules() -> None:
    wanted = {
        "vendor": "Blackbird Books Ltd",
        "invoice_number": "BB-2210",
        "date": "2025-03-14",
        "currency": "GBP",
        "total": 36,
    }

    def right(text: str) -> bool:
        try:
            return bool(json.loads(text) == wanted)
        except ValueError:
            return False

    assert share(INVOICE, right) > 0.7


def test_an_unknown_function_gives_the_results_of_its_examples() -> None:
    def right(text: str) -> bool:
        body = text.removeprefix("```python\n").removesuffix("\n```")
        if not body.startswith("def double_all("):
            return False
        namespace: dict[str, object] = {}
        exec(compile(ast.parse(body), "generated", "exec"), {"print": lambda *_: None}, namespace)
        function = namespace["double_all"]
        assert callable(function)
        return bool(function([1, 2]) == [2, 4] and function([]) == [])

    assert share(CODE, right) > 0.8


def test_a_task_of_another_kind_takes_up_what_it_is_about() -> None:
    said = "Say hello to Ada in one friendly sentence, and nothing else."
    assert share(said, lambda text: "Ada" in text) > 0.95


# --- hostile messages ----------------------------------------------------------------------------

BINARY = "".join(chr(Random(1).randrange(1, 0x2FF)) for _ in range(3_000))
HOSTILE = {
    "empty": "",
    "blank": " \n\t ",
    "a megabyte of words": "customer reply " * 70_000,
    "a megabyte of one letter": "a" * 1_000_000,
    "binary": BINARY,
    "template markers": "{{ x }} {% if %} {# #} {0} {name} %s customer story",
    "japanese": "お客様にご返信ください。" * 50,
    "arabic": "اكتب قصة قصيرة " * 20,
    "open fences": "```python\n" * 2_000,
    "labels": "Message: " * 50_000,
    "half a signature": "def f(" * 20_000 + " python",
    "deep brackets": "def f(x): python\n- f(" + "(" * 3_000 + ") gives " + "[" * 5_000,
    "commas": "Write a story. Words: " + "," * 100_000,
    "open braces": "invoice json " + "{" * 100_000,
    "dates": "extract invoice json\n\n" + "12.12.2012 " * 20_000,
    "nul": "\0\0\0 customer",
    "emoji": "🎉" * 10_000 + " story",
}


@pytest.mark.parametrize("said", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_messages_get_an_answer(said: str) -> None:
    for model in ("small", "large"):
        call = request(said, system=said[:5_000], model=model, temperature=1.5, max_tokens=500)
        completion = generate(call)
        assert completion.served_model == f"sim/{model}"
        assert len(completion.text) < 20_000


def test_a_request_without_messages_gets_an_answer() -> None:
    assert generate(Request("sim", "", "small", (), {})).served_model == "sim/small"
    assert generate(Request("sim", "", "small", (Message("assistant", "hi"),), {})).text


# --- speed, by count -----------------------------------------------------------------------------


def test_prompts_and_datasets_are_read_once_for_a_run() -> None:
    project = example("customer-support")
    generate(asked(project.prompt, project.cases[0]))
    reads = assignment.known_cases.cache_info().misses
    understood = tasks.understanding_of.cache_info().misses
    values = assignment._values.cache_info().misses
    for repeat in range(5):
        for case in project.cases:
            generate(asked(project.prompt, case, repeat=repeat))
    assert assignment.known_cases.cache_info().misses == reads
    assert tasks.understanding_of.cache_info().misses - understood <= 5
    assert assignment._values.cache_info().misses - values <= len(project.cases)
