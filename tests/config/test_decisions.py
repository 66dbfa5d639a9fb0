"""Judges, safety, gates, stop rules, refining, schedules and alerts."""

from __future__ import annotations

import pytest

from edison_ci.config.experiment import Grader, Judges
from edison_ci.config.gates import Gate, Margin
from edison_ci.config.screens import Safety
from edison_ci.config.sections import Schedule
from tests.config.said import said

METRICS = [
    "composite",
    "pass_rate",
    "win_rate",
    "errors",
    "criterion.Tone of voice",
    "check.contains-2",
    "grader.tone",
    "safety.pii",
    "safety.jailbreak",
    "safety.secrets",
    "safety.moderation",
    "safety.toxicity",
    "safety.any",
    "safety.input_pii",
    "cost_usd.mean",
    "latency_ms.p95",
    "tokens.mean",
]
"""The metrics of SPEC.md, section 7."""


def test_every_metric_of_the_contract_can_be_gated(subtests: pytest.Subtests) -> None:
    for metric in METRICS:
        with subtests.test(metric=metric):
            assert said(Gate, f"metric: {metric}\nat_most: 1\n") == []
            assert said(Gate, f"metric: {metric}\nno_worse_than: base\n") == []


@pytest.mark.parametrize(
    ("metric", "hint"),
    [
        ("composit", "did you mean 'composite'?"),
        ("cost_usd", "did you mean 'cost_usd.mean'?"),
        ("criterion", "did you mean 'criterion.NAME'?"),
        ("criterion.", "did you mean 'criterion.NAME'?"),
        ("latency_ms.p50", "did you mean 'latency_ms.p95'?"),
    ],
)
def test_another_metric_is_refused_with_the_nearest(metric: str, hint: str) -> None:
    assert said(Gate, f"metric: {metric}\nat_most: 1\n") == [
        f"1:9: unknown metric '{metric}' ({hint})"
    ]


@pytest.mark.parametrize(
    ("written", "level"), [("80%", 0.8), ("0.8", 0.8), ("1", 1), ("0", 0), ("62.5 %", 0.625)]
)
def test_a_level_is_a_share_however_it_is_written(written: str, level: float) -> None:
    assert said(Gate, f"metric: pass_rate\nat_least: {written}\n") == []
    value = float(written) if "%" not in written else written
    gate = Gate.model_validate({"metric": "pass_rate", "at_least": value})
    assert gate.at_least == pytest.approx(level)


WRONG_GATES = [
    ("at_least: 80", "2:11: at_least is 80; at most 1, or 100% (write 80% or 0.8)"),
    ("at_most: 250", "2:10: at_most is 250; at most 1, or 100% (write 80% or 0.8)"),
    ("at_least: 150%", "2:11: at_least is 1.5; at most 1, or 100% (write 80% or 0.8)"),
    ("at_least: -0.1", "2:11: at_least is -0.1; at least 0"),
    (
        "at_least: 0.5\nfail_rule: beyond_margin",
        "3:12: fail_rule has no effect with at_least or at_most "
        "(remove it, or compare with no_worse_than: base)",
    ),
    (
        "at_least: 0.5\nguarantee: strict",
        "3:12: guarantee has no effect with at_least or at_most "
        "(remove it, or compare with no_worse_than: base)",
    ),
    (
        "at_least: 0.5\nworst_case_drop: 0.5",
        "3:18: worst_case_drop has no effect with at_least or at_most "
        "(remove it, or compare with no_worse_than: base)",
    ),
    ("no_worse_than: base\nconfidence: 40%", "3:13: confidence is 0.4; at least 0.5"),
    ("no_worse_than: base\nconfidence: 1", "3:13: confidence is 1; must be less than 1"),
]


def test_what_makes_no_sense_in_a_gate_is_refused(subtests: pytest.Subtests) -> None:
    for lines, message in WRONG_GATES:
        with subtests.test(lines=lines):
            assert said(Gate, f"metric: pass_rate\n{lines}\n") == [message]


def test_everything_wrong_with_a_gate_is_said_at_once() -> None:
    text = "metric: pass_rate\nat_least: 80\nmargin: 5pp\nif_unclear: more_repeats\n"
    assert [message.partition(" ")[0] for message in said(Gate, text)] == ["2:11:", "3:9:", "4:13:"]


def test_amounts_are_numbers_with_relative_margins() -> None:
    assert said(Gate, "metric: tokens.mean\nat_most: 300\n") == []
    assert said(Gate, "metric: tokens.mean\nat_most: 30%\n") == [
        "2:10: tokens.mean is an amount, not a share "
        "(write a number, such as 0.01 dollars, 2000 milliseconds or 300 tokens)"
    ]
    assert said(Gate, "metric: tokens.mean\nno_worse_than: base\nmargin: 5pp\n") == [
        "3:9: tokens.mean has no points; its margin is relative (write 10%)"
    ]


def test_the_margin_is_five_points_or_a_tenth_of_an_amount() -> None:
    score = Gate(metric="composite", no_worse_than="base")
    amount = Gate(metric="cost_usd.mean", no_worse_than="base")
    written = Gate.model_validate(
        {"metric": "cost_usd.mean", "no_worse_than": "base", "margin": "20%"}
    )
    assert score.effective_margin == Margin(value=0.05)
    assert amount.effective_margin == Margin(value=0.1, relative=True)
    assert written.effective_margin == Margin(value=0.2, relative=True)


@pytest.mark.parametrize(
    ("text", "active"),
    [
        ({}, set()),
        ({"pii": "block", "jailbreak": "flag", "secrets": "off"}, {"pii", "jailbreak", "any"}),
        (
            {"moderation": {"by": "m"}, "toxicity": {"by": "m", "action": "off"}},
            {"moderation", "any"},
        ),
    ],
)
def test_a_screen_is_active_unless_it_is_off(text: dict[str, object], active: set[str]) -> None:
    assert Safety.model_validate(text).active() == active


def test_a_grader_is_known_by_its_name_or_its_prompt() -> None:
    judges = Judges.model_validate(
        {"graders": ["prompts/tone.md", {"prompt": "prompts/tone.md", "name": "mood"}]}
    )
    assert [grader.report_name for grader in judges.graders] == ["tone", "mood"]
    assert judges.graders[0] == Grader(prompt="prompts/tone.md")


@pytest.mark.parametrize("cron", ["0 9 * * 1-5", "*/5 * * * *", "0 0 29 2 *", "0 9 * * MON"])
def test_a_cron_expression_has_five_fields(cron: str) -> None:
    assert said(Schedule, f'name: daily\ncron: "{cron}"\n') == []


CRON_HINT = '(write minute hour day month weekday, in UTC: "0 9 * * 1-5")'


@pytest.mark.parametrize(
    ("cron", "message"),
    [
        ("@daily", "'@daily' is not five fields"),
        ("0 9 * *", "'0 9 * *' is not five fields"),
        ("0 0 9 * * *", "'0 0 9 * * *' is not five fields"),
        ("60 9 * * *", "'60 9 * * *' is not a schedule: bad minute"),
        ("0 24 * * *", "'0 24 * * *' is not a schedule: bad hour"),
        ("0 0 31 2 *", "'0 0 31 2 *' is not a schedule: bad day-of-month"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(cron: str, message: str) -> None:
    assert said(Schedule, f'name: daily\ncron: "{cron}"\n') == [f"2:7: {message} {CRON_HINT}"]
