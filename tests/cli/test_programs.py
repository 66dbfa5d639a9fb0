"""A program of the repository is measured like a model, and a pull request gets no key by one."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from docs.snippets import snippets
from edison_ci.access import github_api
from edison_ci.access.proposal_terms import apply_base_terms
from edison_ci.checks.child import WITHOUT_SANDBOX
from edison_ci.config.load import load_project
from tests.cli.test_trusting import KEY, commit, proposal, rebased
from tests.conftest import ROOT
from tests.features.github.fake_github import TOKEN, FakeGitHub
from tests.opened import opened
from tests.sandboxes import sandbox

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

__all__ = ["proposal", "sandbox"]

FILES = "files: [app, shared.py]"
MODELS = f"""\
small:
  provider: command
  options: {{run: [{sys.executable}, app/main.py], {FILES}}}
  price: {{call: 0.01}}
"""
APP = """\
import json, os, sys
sys.path.insert(0, ".")
from app.words import greet
import shared
for line in sys.stdin:
    asked = json.loads(line)
    name = asked["messages"][-1]["content"].split()[3]
    key = os.environ.get("VENDOR_KEY", "no key")
    text = f"{greet(name)} {shared.SIGN}"
    print(json.dumps({"id": asked["id"], "text": text, "cost_usd": 0.002, "context": [key]}),
          flush=True)
"""
EXPERIMENT = """\
experiment: hello
objective: Greet people by their name in a friendly way.
prompts: [prompts/hello.md]
models: [small]
dataset: datasets/names.jsonl
checks:
  - contains: "{{ expected }}"
gates:
  - {metric: pass_rate, at_least: 50%}
  - {metric: composite, no_worse_than: base, margin: 5pp}
"""
TRUSTED = "version: 1\nprograms:\n  - {model: small, env: [VENDOR_KEY], network: true%s}\n"


def laid_out(project: Folder, trust: str = "version: 1\n") -> None:
    project.write("models.yaml", MODELS)
    project.write("app/main.py", APP)
    project.write("app/words.py", "def greet(name): return f'Hello {name}!'\n")
    project.write("shared.py", "SIGN = 'Yours'\n")
    project.write("experiments/hello.yaml", EXPERIMENT)
    project.write("edison.yaml", "version: 1\nproject: mini\nsettings: {allow_code: true}\n")
    project.write(".edison/trust.yaml", trust)
    project.write("datasets/names.jsonl", "".join(
        json.dumps({"id": f"c{i}", "input": {"name": f"P{i}"}, "expected": f"P{i}"}) + "\n"
        for i in range(20)
    ))  # fmt: skip


def texts(project: Folder) -> set[str]:
    with opened(project.path / ".edison/results.db") as connection:
        return {row[0] for row in connection.execute("select text from answer_text")}


def contexts(project: Folder) -> set[str]:
    with opened(project.path / ".edison/results.db") as connection:
        rows = connection.execute("select details from answer_text").fetchall()
    return {json.loads(row[0])["context"][0] for row in rows}


def ran(edison: Edison, project: Folder, *more: str, code: int = 0) -> dict[str, Any]:
    done = edison(project, "run", "--yes", "--json", *more)
    assert done.code == code, done.all
    (run,) = json.loads(done.out)["runs"]
    return dict(run)


@pytest.fixture
def home(mini: Folder) -> Folder:
    (mini.path / "rubrics/tone.yaml").unlink()
    laid_out(mini)
    mini.git("init", "--quiet", "--initial-branch=main")
    commit(mini, "start")
    return mini


def test_a_program_is_measured_and_costs_what_it_says(edison: Edison, home: Folder) -> None:
    run = ran(edison, home)
    assert run["pass_rate"]["estimate"] == 1
    assert run["cost_microusd"] == 20 * 2_000
    cell = json.loads(edison(home, "explain", "c3@small", "--json").out)
    assert cell["answer"]["details"] == {"context": ["no key"]}
    again = ran(edison, home)
    assert again["calls"]["reused"] == 20, "the same program is not asked again"
    home.write("app/words.py", "def greet(name): return f'Hi {name}!'\n")
    assert ran(edison, home)["calls"]["reused"] == 0, "another program is"


@pytest.mark.nightly
@pytest.mark.parametrize("path", ["app/.rules", "app/node_modules/left/index.js", "shared.py"])
def test_answers_of_a_program_with_other_files_are_not_reused(
    edison: Edison, home: Folder, path: str
) -> None:
    ran(edison, home)
    home.write(path, "SIGN = 'Ours'\n")
    assert ran(edison, home)["calls"]["reused"] == 0


@pytest.mark.nightly
def test_a_program_has_no_file_that_is_not_listed(edison: Edison, home: Folder) -> None:
    home.write("models.yaml", MODELS.replace(FILES, "files: [app]"))
    done = edison(home, "run", "--yes", "--json")
    assert done.code == 3, "every call is an error"
    with opened(home.path / ".edison/results.db") as connection:
        assert connection.execute("select count(*) from answer_text").fetchone() == (0,)


@pytest.mark.nightly
def test_old_and_new_program_are_measured_on_the_same_cases_in_one_run(
    edison: Edison, home: Folder
) -> None:
    home.write("app/words.py", "def greet(name): return 'Hello you!'\n")
    run = ran(edison, home, "--against", "HEAD", code=1)
    assert run["cells"]["total"] == 40
    assert run["verdict"] == "fail"
    assert {"Hello you! Yours", "Hello P7! Yours"} < texts(home)


@pytest.mark.nightly
def test_a_run_of_a_changed_program_is_no_run_of_the_commit(edison: Edison, home: Folder) -> None:
    home.write("app/words.py", "def greet(name): return 'Hello you!'\n")
    ran(edison, home, code=1)
    (home.path / "app/words.py").write_text("def greet(name): return f'Hello {name}!'\n")
    run = ran(edison, home)
    assert [gate["verdict"] for gate in run["gates"]] == ["pass", "skipped"], "no base is stored"


def test_a_program_needs_leave(edison: Edison, home: Folder) -> None:
    home.write("edison.yaml", "version: 1\nproject: mini\n")
    done = edison(home, "run", "--yes")
    assert done.code == 2, done.all
    assert "a model runs code of the repository\n    pass --allow-code" in done.all
    assert "runs a program of the repository" in edison(home, "models", "test").all
    assert edison(home, "run", "--yes", "--allow-code").code == 0


@pytest.mark.nightly
def test_a_program_gets_the_variables_that_trust_names(
    edison: Edison, home: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VENDOR_KEY", KEY)
    ran(edison, home)
    assert contexts(home) == {"no key"}
    home.write(".edison/trust.yaml", TRUSTED % "")
    home.write("app/words.py", "def greet(name): return f'Hi {name}!'\n")
    ran(edison, home)
    assert contexts(home) == {"no key", "[key]"}, "it has the key, and what it prints is masked"
    assert KEY not in (home.path / ".edison/results.db").read_bytes().decode("latin-1")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("{run: [python3, app/main.py]}", "files"),
        ("{files: [app]}", "run"),
        ("{run: [x], files: [nothing]}", "nothing does not exist"),
        ("{run: [x], files: [/etc]}", "is absolute"),
        ("{run: [x], files: ['../other']}", "leaves the project"),
        ("{run: [], files: [app]}", "run"),
        ("{run: 'python3 app/main.py', files: [app]}", "run"),
    ],
)
def test_options_that_cannot_work_are_refused(
    edison: Edison, home: Folder, options: str, said: str
) -> None:
    home.write("models.yaml", f"small: {{provider: command, options: {options}, price: free}}\n")
    done = edison(home, "validate")
    assert done.code == 2, done.all
    assert said in done.all


def test_a_program_has_no_key_of_its_own(edison: Edison, home: Folder) -> None:
    home.write("models.yaml", MODELS + "  key_env: VENDOR_KEY\n")
    done = edison(home, "validate")
    assert "name its variables under programs in .edison/trust.yaml" in done.all


def test_the_program_of_the_documentation_works(edison: Edison, home: Folder) -> None:
    page = snippets(ROOT / "docs/applications.md")
    (code,) = [each for each in page if each.title == "app/answer.py"]
    home.write("app/main.py", code.text)
    run = ran(edison, home)
    assert run["pass_rate"]["estimate"] == 1
    assert run["cost_microusd"] == 20 * 1_200
    cell = json.loads(edison(home, "explain", "c3@small", "--json").out)
    assert set(cell["answer"]["details"]) == {"context", "steps"}
    shown = edison(home, "explain", "c3@small").out
    assert "--- context" in shown
    assert "page 3" in shown


# --- pull requests --------------------------------------------------------------------------------


@pytest.fixture
def proposed(proposal: Folder, tmp_path: Path) -> Folder:
    """A pull request whose base has a program with a key."""
    laid_out(proposal, TRUSTED % ", environment: trial")
    rebased(proposal, tmp_path)
    return proposal


@pytest.mark.nightly
def test_the_program_of_the_base_runs_with_its_key_and_its_own_files(
    edison: Edison, proposed: Folder
) -> None:
    proposed.edit("prompts/hello.md", "friendly", "very friendly")
    proposed.write("json.py", "import os\nSIGN = os.environ['VENDOR_KEY'][::-1]\n")
    commit(proposed, "another prompt, and a file that is not listed")
    run = ran(edison, proposed)
    assert run["pass_rate"]["estimate"] == 1
    assert contexts(proposed) == {"[key]"}
    assert texts(proposed) == {f"Hello P{number}! Yours" for number in range(20)}


CHANGES = {
    "its file": ("app/words.py", "def greet(name):\n    open('PWNED', 'w')\n    return name\n"),
    "a new file": ("app/json.py", "open('PWNED', 'w')\n"),
    "a hidden file": ("app/.rules", "answer badly"),
    "a committed package": ("app/node_modules/left/index.js", "answer badly"),
    "a lock file": ("app/package-lock.json", "{}"),
    "a listed file beside it": ("shared.py", "SIGN = 'Badly'"),
    "its arguments": ("models.yaml", MODELS.replace("app/main.py]", "evil.py]")),
    "its files": ("models.yaml", MODELS.replace(FILES, "files: [shared.py]")),
    "its set-up": ("models.yaml", MODELS.replace(FILES, f"{FILES}, setup: [evil]")),
    "its trust": (".edison/trust.yaml", "version: 1\nprograms: [{model: small}]\n"),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_a_changed_program_gets_nothing_and_decides_nothing(
    edison: Edison, proposed: Folder, kind: str
) -> None:
    proposed.write(*CHANGES[kind])
    proposed.write("evil.py", "open('PWNED', 'w')\n")
    proposed.write("app/more.py", "")
    commit(proposed, "change it")
    done = edison(proposed, "run", "--yes", "--json")
    (run,) = json.loads(done.out)["runs"]
    assert run["verdict"] == "inconclusive", done.all
    assert run["cells"]["skipped"] == 20
    assert "job that a person approved (environment trial" in done.all
    assert not (proposed.path / "PWNED").exists()


def test_a_program_that_the_base_does_not_name_is_skipped(
    edison: Edison, proposed: Folder, tmp_path: Path
) -> None:
    proposed.write(".edison/trust.yaml", "version: 1\n")
    rebased(proposed, tmp_path)
    run = ran(edison, proposed)
    assert run["verdict"] == "inconclusive"
    assert run["cells"]["skipped"] == 20


@pytest.mark.nightly
@pytest.mark.usefixtures("sandbox")
def test_a_changed_program_that_needs_nothing_runs_without_keys_and_network(
    edison: Edison, proposed: Folder, tmp_path: Path
) -> None:
    proposed.write(".edison/trust.yaml", "version: 1\nprograms: [{model: small}]\n")
    rebased(proposed, tmp_path)
    proposed.git("config", "http.extraheader", "token-of-the-job")
    secrets = [proposed.path / ".git/config", Path.home() / ".netrc", proposed.path / "app/.left"]
    secrets[1].write_text("password-of-home")
    proposed.write(
        "app/words.py",
        "def greet(name):\n"
        f"    for path in {[str(path) for path in secrets]} + ['.git/config', 'app/.left']:\n"
        "        try:\n"
        "            name += open(path).read()\n"
        "        except OSError:\n"
        "            pass\n"
        "    try:\n"
        "        open('PWNED', 'w')\n"
        "    except OSError:\n"
        "        return f'Good day {name}!'\n",
    )
    commit(proposed, "change it")
    secrets[2].write_text("credentials-of-a-step")
    run = ran(edison, proposed)
    assert run["pass_rate"]["estimate"] == 1
    assert contexts(proposed) == {"no key"}
    assert texts(proposed) == {f"Good day P{number}! Yours" for number in range(20)}
    stored = (proposed.path / ".edison/results.db").read_bytes().decode("latin-1")
    assert not [word for word in ("token-of", "password-of", "credentials-of") if word in stored]


def test_a_changed_program_is_skipped_where_there_is_no_sandbox(
    edison: Edison, proposed: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edison_ci.checks.child.sandbox", lambda: "none")
    monkeypatch.delenv(WITHOUT_SANDBOX, raising=False)
    proposed.write(".edison/trust.yaml", "version: 1\nprograms: [{model: small}]\n")
    rebased(proposed, tmp_path)
    marker = proposed.path / "PWNED"
    proposed.write("app/words.py", f"open({str(marker)!r}, 'w')\ndef greet(name): return name\n")
    commit(proposed, "change it")
    run = ran(edison, proposed)
    assert run["verdict"] == "inconclusive"
    assert run["cells"]["skipped"] == 20
    assert not marker.exists()


@pytest.mark.usefixtures("sandbox")
@pytest.mark.parametrize("side", ["base", "head"])
def test_only_the_base_names_folders_and_limits_of_a_program(
    edison: Edison, proposed: Folder, tmp_path: Path, side: str
) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "weights").write_text("from-the-folder")
    plain = "version: 1\nprograms: [{model: small%s}]\n"
    more = f", folders: [{folder}], limits: {{memory_mb: 3000, processes: 9, files_mb: 2}}"
    proposed.write(".edison/trust.yaml", plain % (more if side == "base" else ""))
    rebased(proposed, tmp_path)
    proposed.write(".edison/trust.yaml", plain % more)
    proposed.write(
        "app/words.py",
        "import resource\n"
        "def greet(name):\n"
        "    try:\n"
        f"        text = open({str(folder / 'weights')!r}).read()\n"
        "    except OSError:\n"
        "        text = 'nothing'\n"
        "    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0] >> 20\n"
        "    return f'{name} {text} {limit}'\n",
    )
    commit(proposed, "change it")
    ran(edison, proposed)
    seen = "from-the-folder 2" if side == "base" else "nothing 1024"
    assert f"P7 {seen} Yours" in texts(proposed)


@pytest.mark.parametrize(("how", "verdict"), [("approved", "pass"), ("rejected", "inconclusive")])
def test_a_person_may_approve_a_changed_program(
    edison: Edison, proposed: Folder, monkeypatch: pytest.MonkeyPatch, how: str, verdict: str
) -> None:
    proposed.write("app/words.py", "def greet(name): return f'Good day {name}!'\n")
    commit(proposed, "change it")
    monkeypatch.setenv("GITHUB_RUN_ID", "77" if how == "approved" else "78")
    with FakeGitHub() as github:
        github.state.approved = {"other": "approved", "trial": how}
        github.grants[TOKEN].permissions["actions"] = "read"
        monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
        monkeypatch.setenv("GITHUB_REPOSITORY", "acme/prompts")
        monkeypatch.setenv("GITHUB_API_URL", github.url)
        run = ran(edison, proposed)
    assert run["verdict"] == verdict
    if how == "approved":
        assert contexts(proposed) == {"[key]"}
    github_api._approved.cache_clear()


def test_a_pull_request_cannot_make_a_program_cheaper(proposed: Folder) -> None:
    proposed.write("models.yaml", MODELS.replace("{call: 0.01}", "free"))
    commit(proposed, "it costs nothing now")
    project = apply_base_terms(load_project(proposed.path))
    price = project.prices.price_of(project.models["small"])
    assert price is not None
    assert price.call == 0.01
