"""Every body that we build is accepted by a service as strict as the vendors' own.

For every model of the table that OpenAI, Azure and Anthropic serve, in every role.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.config.load import Project, load_project
from edison_ci.config.models import Model, sent_params
from edison_ci.config.prices import load_prices
from edison_ci.execute.probe import probe_request
from edison_ci.execute.tasks import Task, request_for
from edison_ci.features.refine.refiner import RefinePrompt, RejectedSuggestion, refiner_of
from edison_ci.features.refine.weaknesses import Example, WeakComponent, Weakness
from edison_ci.judges.instructions import load_instructions
from edison_ci.judges.judge import Judge, retry_request
from edison_ci.judges.panel import ExperimentJudges, moderators, pairwise_judge
from edison_ci.judges.pointwise import QUESTION_CRITERIA, Pointwise, QuestionJudge
from edison_ci.proposals.candidate import target_of
from edison_ci.providers import anthropic, openai_compatible, openai_responses
from tests.conftest import MINIMAL, Folder
from tests.judges.bench import CASE, Scripted
from tests.loopback.protocols import Chat
from tests.loopback.strict import refusal
from tests.providers.kitchen import ask, model

if TYPE_CHECKING:
    from edison_ci.records import Json, Request

ENTRIES = {
    "openai": "{{provider: openai, model: {0}}}",
    "anthropic": "{{provider: anthropic, model: {0}}}",
    "azure": "{{provider: azure, model: {0}, base_url: 'https://x.example', "
    "options: {{deployment: d, api_version: '2024-10-21'}}}}",
}
ROWS = {
    key: row
    for key, row in load_prices().models.items()
    if key.split("/")[0] in ENTRIES and row.get("mode", "chat") in ("chat", "responses")
}
WRITTEN: list[dict[str, Any]] = [
    {},
    {"temperature": 0.3},
    {"top_p": 0.9},
    {"temperature": 0.3, "top_p": 0.9},
    {"temperature": 0.2, "seed": 7, "stop": ["END"], "frequency_penalty": 0.5, "max_tokens": 2_000},
]
SCHEMA: Json = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
LONG = [{"role": "user", "content": "word " * 4_000}]
OPEN = {"type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": SCHEMA}}
TOOLS: Json = [{"name": "search", "description": "Search.", "parameters": SCHEMA}]


def body_of(served: Model, request: Request) -> Chat:
    """Return what is sent to a model, as its service sees it."""
    named = replace(request, model=served.model)
    if served.provider == "anthropic":
        return Chat("anthropic", anthropic.request_body(named, served.capabilities))
    if served.capabilities.responses:
        return Chat("responses", openai_responses.request_body(named, served.capabilities))
    dialect = replace(openai_compatible.find_dialect(served), names_model=True)
    return Chat("openai", openai_compatible.request_body(named, dialect))


def wanted(served: Model, written: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters that validation lets a user write for a model."""
    taken = ("temperature", "top_p", "stop", "max_tokens", "reasoning")
    written = {k: v for k, v in written.items() if served.provider != "anthropic" or k in taken}
    most = served.capabilities.max_out or 2_000
    return {k: min(v, most) if k == "max_tokens" else v for k, v in written.items()}


ROLES = ("asked", "pointwise", "grader", "pairwise", "screen", "refiner")
FILES = MINIMAL | {
    "models.yaml": "".join(f"{name}: {{provider: sim, model: judge}}\n" for name in ROLES),
    "prompts/tone.md": "---\nid: tone\ntype: grader\nparams: {temperature: 0}\n"
    "---\nIs this friendly, yes or no? {{ output }}\n",
    "experiments/hello.yaml": MINIMAL["experiments/hello.yaml"]
    .replace("[small]", "[asked]")
    .replace(
        "{pointwise: [judge]}",
        "{pointwise: [pointwise], pairwise: {by: pairwise}, "
        "graders: [{prompt: prompts/tone.md, by: grader}]}\n"
        "safety: {moderation: {by: screen}, toxicity: {by: screen}}\nrefine: {by: refiner}",
    ),
}
"""A project with a model in every role."""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    folder = Folder(tmp_path_factory.mktemp("strict"))
    for name, text in FILES.items():
        folder.write(name, text)
    return load_project(folder.path)


def serving(project: Project, served: Model) -> Project:
    """Return the project with one model behind the names of all roles."""
    named = {role: replace(served, name=role) for role in ROLES}
    (one,) = project.experiments.values()
    generators = tuple((name, named[name], params) for name, _, params in one.models)
    judges = tuple(named[judge.name] for judge in one.judges)
    return replace(
        project,
        models=named,
        experiments={one.id: replace(one, models=generators, judges=judges)},
    )


def generating(served: Model) -> list[Request]:
    """Return what a generator is sent, with every parameter that may be written."""
    levels = [{"reasoning": level} for level in served.capabilities.reasoning or ()]
    both = [{"temperature": 0.2, **level, "max_tokens": 2_000} for level in levels]
    found = []
    for written in [*WRITTEN, *levels, *both]:
        params, left_out = sent_params(served, wanted(served, written))
        plain = ask(system="Be kind.", params=params, left_out=left_out)
        found.append(plain)
        if served.capabilities.tools is not False:  # said by validate
            found.append(replace(plain, tools=TOOLS))
        if served.capabilities.schema is not False:  # said by validate
            found.append(replace(plain, response_format=SCHEMA))
    return found


def in_roles(project: Project) -> dict[str, Request]:
    """Return what a run, a refinement, a grading of questions and a test send in each role."""
    (one,) = project.experiments.values()
    (hello,) = one.prompts
    (configuration,) = one.configurations(hello)
    judges = ExperimentJudges.of(project, one, Scripted(""))
    compare = pairwise_judge(project, one)
    assert judges is not None and judges.panel is not None and compare is not None
    (panel,) = judges.panel.judges
    assert isinstance(panel, Pointwise)
    asked_by = Judge.of(project.models["pointwise"])
    told = load_instructions("question", project.tree)
    question = QuestionJudge(asked_by, QUESTION_CRITERIA, one.file.objective, told)
    weak = WeakComponent("Warmth", "criterion", 0.5)
    example = Example("0", CASE, "Hi", 0.2, ())
    past = RejectedSuggestion("Be warm.", "@@", "tried", "no gain")
    change = RefinePrompt(
        target_of(project, one),
        refiner_of(project.models["refiner"]),
        Weakness((weak,), (example,), 9),
        (past,),
    )
    found = {
        "generator": request_for(Task(hello, configuration, CASE, 0)),
        "judge": panel.request(CASE, "Hi"),
        "judge of questions": question.request(CASE),
        "pairwise judge": compare.request(CASE, "Hi", "Hello"),
        "grader": judges.graders[0].grader.request(CASE, "Hi"),
        "refiner": change.request(0),
        "refiner, asked again": change.request(0, ["it does not apply"]),
    }
    found |= {screen.instructions.kind: screen.request("Hi") for screen in moderators(project, one)}
    found |= {f"{k}, retried": retry_request(r, "no score") for k, r in found.items()}
    return found | {f"test of {k}": probe_request(project, m) for k, m in project.models.items()}


@pytest.mark.nightly
@pytest.mark.parametrize("provider", ENTRIES)
def test_every_model_takes_what_every_role_sends(
    subtests: pytest.Subtests, project: Project, provider: str
) -> None:
    names = [key.partition("/")[2] for key in ROWS if key.startswith(f"{provider}/")]
    assert names
    for name in names:
        with subtests.test(name):
            assert refusals(project, provider, name) == {}


def refusals(project: Project, provider: str, name: str) -> dict[str, str]:
    """Return what a service refuses of the requests to a model, by role and parameters."""
    served = model(ENTRIES[provider].format(name))
    sent = {f"generator {number}": r for number, r in enumerate(generating(served))}
    in_registry: list[dict[str, Any]] = [{}, {"top_p": 0.9}]
    in_registry += [{"reasoning": level} for level in served.capabilities.reasoning or ()]
    for written in in_registry:
        with_params = replace(served, params=written)
        requests = in_roles(serving(project, with_params))
        sent |= {f"{role} {written}": request for role, request in requests.items()}
    return {
        role: why
        for role, request in sent.items()
        if (why := refusal(body_of(served, request), provider)) is not None
    }


REFUSED_REQUESTS: list[tuple[str, str, dict[str, Any], str]] = [
    ("anthropic", "claude-opus-4-7", {"temperature": 0.3}, "deprecated"),
    ("anthropic", "claude-opus-4-5", {"temperature": 0.3, "top_p": 0.9}, "cannot both"),
    ("anthropic", "claude-fable-5", {"thinking": {"type": "disabled"}}, "always thinks"),
    ("anthropic", "claude-opus-4-5", {"max_tokens": 10**6}, "too large"),
    ("anthropic", "claude-opus-4-5", {"seed": 1}, "Extra inputs"),
    ("openai", "gpt-5.6", {"temperature": 0.3}, "Unsupported parameter: 'temperature'"),
    ("openai", "gpt-5.6", {"max_tokens": 9}, "max_completion_tokens"),
    ("openai", "gpt-5.6", {"reasoning_effort": "minimal"}, "does not support 'minimal'"),
    ("openai", "o3-pro", {}, "only supported in v1/responses"),
    ("openai", "gpt-4.1", {"top_k": 3}, "Unknown parameter: 'top_k'"),
    ("openai", "gpt-4.1", {"response_format": {"type": "json_object"}}, "the word 'json'"),
    ("responses", "o3-pro", {"seed": 3}, "Unknown parameter: 'seed'"),
    ("responses", "o3-pro", {"max_output_tokens": 3}, "must be between 16"),
    ("openai", "gpt-4", {"max_tokens": 4_096, "messages": LONG}, "maximum context length"),
    ("anthropic", "claude-opus-4-5", {"messages": LONG * 50}, "maximum context length"),
    ("openai", "gpt-4.1", {"tool_choice": "auto"}, "only allowed when 'tools'"),
    ("openai", "gpt-4.1", {"stop": ["x"] * 5}, "at most 4"),
    ("openai", "gpt-4.1", {"response_format": OPEN}, "'additionalProperties'"),
    ("anthropic", "claude-opus-4-5", {"tool_choice": {"name": "x"}}, "not in tools"),
]


def test_the_strict_service_refuses_what_the_vendors_refuse(subtests: pytest.Subtests) -> None:
    for protocol, name, more, said in REFUSED_REQUESTS:
        with subtests.test(model=name, parameters=more):
            messages = [{"role": "user", "content": "Hi"}]
            place = "input" if protocol == "responses" else "messages"
            body = {"model": name, place: messages, **more}
            if protocol == "anthropic":
                body = {"max_tokens": 50, **body}
            assert said in str(refusal(Chat(protocol, body)))
