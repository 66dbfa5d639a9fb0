"""edison import: what it writes, what it refuses to touch, and what it says."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from docs.sample import build

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

CONFIG = """\
description: Greets people by their names
prompts: ["Say hello to {{name}}, who is a guest of ours, in a sentence."]
providers: [echo]
tests:
  - vars: {name: Ada}
    assert: [{type: contains, value: Ada}]
  - vars: {name: Bo}
    assert: [{type: contains, value: Bo}, {type: javascript, value: "f(1)"}]
"""
PROMPT = """\
name: Wish
model: openai/gpt-4o-mini
messages: [{role: user, content: "Write a birthday wish for {{name}}, who likes tea and cake."}]
testData: [{name: Ada}]
evaluators: [{name: Named, string: {contains: "{{name}}"}}]
"""


@pytest.fixture
def source(folder: Folder) -> Folder:
    """A folder with configurations of other tools."""
    folder.write("evals/promptfooconfig.yaml", CONFIG)
    folder.write("wish.prompt.yml", PROMPT)
    return folder


def document(done: Any) -> dict[str, Any]:
    assert done.code == 0, done.all
    found: dict[str, Any] = json.loads(done.out)
    return found


def tree(path: Path) -> set[str]:
    return {each.relative_to(path).as_posix() for each in path.rglob("*") if each.is_file()}


def test_a_configuration_becomes_a_project_that_runs(edison: Edison, source: Folder) -> None:
    done = edison(source, "import", "promptfoo", "evals/promptfooconfig.yaml", "--into", "new")
    assert done.code == 0
    assert "mapped (7)" in done.out
    assert (
        "  evals/promptfooconfig.yaml:8:43  tests[1].assert[1]: javascript: only simple expressions"
        in done.out
    )
    assert "wrote experiments/evals.yaml" in done.out
    assert done.err.endswith("edison plan         show what a run would do and cost\n")
    assert edison(source, "-C", "new", "validate").code == 0
    assert edison(source, "-C", "new", "run").code == 0


def test_json_has_every_key_with_its_place(edison: Edison, source: Folder) -> None:
    done = edison(
        source, "import", "promptfoo", "evals/promptfooconfig.yaml", "--into", "new", "--json"
    )
    found = document(done)
    assert list(found)[:4] == ["schema_version", "project", "experiments", "dry_run"]
    assert list(found)[4:] == ["files", "counts", "keys", "warnings"]
    assert found["experiments"] == ["evals"]
    assert found["counts"] == {"mapped": 7, "approximated": 0, "unsupported": 1}
    assert len(found["keys"]) == 8
    assert found["keys"][0] == {
        "status": "mapped",
        "file": "evals/promptfooconfig.yaml",
        "line": 1,
        "column": 1,
        "key": "description",
        "target": "experiments/evals.yaml description, objective",
        "note": "",
    }
    assert done.err == ""


def test_a_preview_writes_nothing(edison: Edison, source: Folder) -> None:
    before = tree(source.path)
    done = edison(source, "import", "promptfoo", "evals/promptfooconfig.yaml", "--dry-run")
    assert done.code == 0
    assert "would write experiments/evals.yaml" in done.out
    assert "nothing was written" in done.err
    assert tree(source.path) == before


@pytest.mark.parametrize("name", ["experiments/evals.yaml", "datasets/evals.jsonl", "models.yaml"])
def test_a_file_that_exists_is_never_touched(edison: Edison, source: Folder, name: str) -> None:
    source.write(name, "mine\n")
    before = tree(source.path)
    done = edison(source, "import", "promptfoo", "evals/promptfooconfig.yaml")
    assert done.code == 2
    assert "nothing was written" in done.err
    assert source.read(name) == "mine\n"
    assert tree(source.path) == before


def test_a_second_import_needs_another_name(edison: Edison, source: Folder) -> None:
    words = ("import", "promptfoo", "evals/promptfooconfig.yaml", "--into", "new")
    assert edison(source, *words).code == 0
    again = edison(source, *words)
    assert (again.code, "prompts/evals.md and 2 more exists already" in again.err) == (2, True)
    other = edison(source, *words, "--name", "other", "--json")
    assert document(other)["files"] == [
        "prompts/other.md",
        "experiments/other.yaml",
        "datasets/other.jsonl",
    ]
    assert edison(source, "-C", "new", "validate").code == 0


@pytest.mark.parametrize("name", ["", "Big", "a/b", "../x", "x" * 60])
def test_a_name_must_be_one(edison: Edison, source: Folder, name: str) -> None:
    done = edison(
        source, "import", "promptfoo", "evals/promptfooconfig.yaml", "--name", name or " "
    )
    assert (done.code, "is not a valid name of an experiment" in done.err) == (2, True)


def test_into_a_project_models_are_asked_for_and_found(edison: Edison, mini: Folder) -> None:
    mini.write("pf.yaml", CONFIG)
    done = edison(mini, "import", "promptfoo", "pf.yaml")
    assert done.code == 2
    assert "models.yaml does not contain echo; nothing was written" in done.err
    assert "echo: {provider: sim, model: echo}" in done.err
    mini.write("models.yaml", mini.read("models.yaml") + "copycat: {provider: sim, model: echo}\n")
    found = document(edison(mini, "import", "promptfoo", "pf.yaml", "--json"))
    assert found["files"] == ["prompts/pf.md", "experiments/pf.yaml", "datasets/pf.jsonl"]
    assert "models: [copycat]" in mini.read("experiments/pf.yaml")
    assert edison(mini, "run", "pf").code == 0


def test_a_viewer_may_not_import_and_the_refusal_is_audited(edison: Edison, mini: Folder) -> None:
    build(mini.write(".edison/keep", "").parent / "results.db")
    mini.write("pf.yaml", CONFIG)
    mini.write(
        "edison.yaml",
        mini.read("edison.yaml") + "members: [{email: nobody@example.com, role: owner}]\n",
    )
    done = edison(mini, "import", "promptfoo", "pf.yaml")
    assert (done.code, "needs an editor" in done.err) == (2, True)
    assert "refused: import promptfoo" in edison(mini, "admin", "audit").out
    assert not (mini.path / "experiments/pf.yaml").exists()


def test_an_import_is_audited_where_there_are_results(edison: Edison, mini: Folder) -> None:
    build(mini.write(".edison/keep", "").parent / "results.db")
    mini.write("pf.yaml", CONFIG.replace("[echo]", '["echo"]'))
    mini.write("models.yaml", mini.read("models.yaml") + "echo: {provider: sim, model: echo}\n")
    assert edison(mini, "import", "promptfoo", "pf.yaml", "--dry-run").code == 0
    assert edison(mini, "import", "promptfoo", "pf.yaml").code == 0
    with closing(sqlite3.connect(mini.path / ".edison/results.db")) as connection:
        rows = connection.execute(
            "select entity, after from audit where action = 'import promptfoo'"
        ).fetchall()
    ((entity, after),) = rows
    assert entity == "pf"
    assert json.loads(after) == {"files": 3, "mapped": 7, "approximated": 0, "unsupported": 1}


def test_secrets_never_leave_the_source(edison: Edison, source: Folder) -> None:
    openai, token = "sk-" + "proj-" + "a1B2" * 8, "ghp_" + "Zz9" * 12
    kind = "RSA PRIVATE KEY"
    pem = f"-----BEGIN {kind}-----\nMIIBOgIBAAJB\nAKj34Gkx\n-----END {kind}-----"
    source.write("key.txt", f"Read this: {{{{name}}}}\n{pem}\nand that it is long enough.\n")
    source.write("rows.csv", f"name,note\nAda,{token}\n")
    config = CONFIG.replace("[echo]", f"[{{id: echo, config: {{apiKey: {openai}}}}}]")
    config += f"  - file://rows.csv\nenv: {{OPENAI_API_KEY: {openai}}}\n"
    config = config.replace('prompts: ["', 'prompts: ["file://key.txt", "')
    source.write("pf.yaml", config)
    done = edison(source, "import", "promptfoo", "pf.yaml", "--into", "new", "--report")
    assert done.code == 0, done.all
    written = "".join(
        path.read_text(encoding="utf-8")
        for path in (source.path / "new").rglob("*")
        if path.is_file()
    )
    for piece in (openai, openai[5:], token, "MIIBOgIBAAJB", "AKj34Gkx"):
        assert piece not in done.all
        assert piece not in written
    assert "this looks like an OpenAI key" in done.out
    assert "rows.csv:2:5  (secret): this looks like a GitHub token" in done.out
    assert "a literal key is never copied" in done.out
    assert edison(source, "-C", "new", "validate").code == 0


def test_links_out_of_the_folder_are_refused(edison: Edison, source: Folder) -> None:
    source.write("outside.txt", "a text that is not below the configuration: {{name}}")
    (source.path / "evals/link.txt").symlink_to(source.path / "outside.txt")
    (source.path / "evals/inner.txt").write_text("Greet {{name}} and offer a cup of tea or coffee.")
    (source.path / "evals/good.txt").symlink_to("inner.txt")
    source.edit(
        "evals/promptfooconfig.yaml", 'prompts: ["', 'prompts: [file://link.txt, file://good.txt, "'
    )
    done = edison(source, "import", "promptfoo", "evals/promptfooconfig.yaml", "--into", "new")
    assert done.code == 0
    assert "prompts[0]: link.txt is a link that leaves the project" in done.out
    assert "prompts[1] -> prompts/evals-good.md" in done.out


def test_a_folder_that_links_out_of_the_project_is_not_written_to(
    edison: Edison, source: Folder
) -> None:
    (source.path / "elsewhere").mkdir()
    (source.path / "new").mkdir()
    (source.path / "new/prompts").symlink_to(source.path / "elsewhere")
    done = edison(source, "import", "promptfoo", "evals/promptfooconfig.yaml", "--into", "new")
    assert (done.code, "would be written outside of the project" in done.err) == (2, True)
    assert tree(source.path / "elsewhere") == set()
    assert tree(source.path / "new") == set()


def test_the_report_can_be_written(edison: Edison, source: Folder) -> None:
    words = ("import", "promptfoo", "evals/promptfooconfig.yaml", "--into", "new", "--report")
    assert edison(source, *words).code == 0
    page = source.read("new/evals-import.md")
    assert page.startswith("# Import of evals\n\n## Unsupported (1)\n")
    assert "| evals/promptfooconfig.yaml:8:43 | tests\\[1\\].assert\\[1\\] |" in page
    assert "- `experiments/evals.yaml`" in page


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prompts: [a\n", "is not closed"),
        ("a: 1\na: 2\n", "given twice"),
        ("- a\n", "is not a YAML map"),
        ("prompts: !!js/function x\n", "tag"),
        ("prompts: [hello]\nproviders: ['openai:image:x']\n", "none of its providers"),
        ("prompts: ['{{ x() }}']\nproviders: [echo]\n", "none of its prompts"),
        ("prompts: [a]\nproviders: [echo]\ntests: file://x.py\n", "none of its tests"),
        ("providers: [echo]\n<<: 3\n", "merge key"),
    ],
)
def test_what_cannot_be_imported_ends_with_2(
    edison: Edison, folder: Folder, text: str, said: str
) -> None:
    folder.write("pf.yaml", text)
    done = edison(folder, "import", "promptfoo", "pf.yaml", "--into", "new")
    assert (done.code, said in done.err) == (2, True), done.all
    assert not (folder.path / "new").exists()
    failed = json.loads(edison(folder, "import", "promptfoo", "pf.yaml", "--json").out)
    assert failed["exit_code"] == 2
    assert said in failed["error"]["message"]
    if said.startswith("none of"):
        assert "unsupported" in {key["status"] for key in failed["keys"]}


def test_a_file_that_is_not_there_is_named(edison: Edison, source: Folder) -> None:
    done = edison(source, "import", "promptfoo", "nowhere.yaml")
    assert (done.code, "'nowhere.yaml' is not a file" in done.err) == (2, True)
    assert edison(source, "-C", "evals", "import", "promptfoo", "promptfooconfig.yaml").code == 0


def test_a_configuration_that_is_code_is_not_run(edison: Edison, source: Folder) -> None:
    source.write("promptfooconfig.js", "module.exports = {}")
    done = edison(source, "import", "promptfoo", "promptfooconfig.js")
    assert (done.code, "is not run" in done.err) == (2, True)


def test_hostile_text_is_harmless_on_the_screen(edison: Edison, folder: Folder) -> None:
    folder.write("pf.yaml", CONFIG + '"evil\\e[31m\\u202Ekey": "::error::x"\n')
    done = edison(folder, "import", "promptfoo", "pf.yaml", "--into", "new")
    assert done.code == 0
    assert "\x1b" not in done.all
    assert "\u202e" not in done.all
    assert "evil\\u{1b}[31m" in done.out


def test_prompt_files_become_experiments(edison: Edison, source: Folder) -> None:
    source.write("card.prompt.yml", PROMPT.replace("birthday wish", "short card"))
    found = document(
        edison(source, "import", "prompt-yml", "wish.prompt.yml", "card.prompt.yml", "--into",
               "new", "--json")
    )  # fmt: skip
    assert found["experiments"] == ["wish", "card"]
    assert source.read("new/models.yaml").count("model: gpt-4o-mini") == 1
    assert edison(source, "-C", "new", "validate").code == 0


def test_two_prompt_files_never_share_the_name_of_a_model(edison: Edison, source: Folder) -> None:
    source.write("card.prompt.yml", PROMPT.replace("openai/gpt", "other/gpt"))
    words = ("import", "prompt-yml", "wish.prompt.yml", "card.prompt.yml", "--into", "new")
    assert edison(source, *words).code == 0
    assert "models: [gpt-4o-mini]" in source.read("new/experiments/wish.yaml")
    assert "models: [gpt-4o-mini-2]" in source.read("new/experiments/card.yaml")


def test_models_of_github_are_called_at_their_vendors(edison: Edison, mini: Folder) -> None:
    mini.write("wish.prompt.yml", PROMPT)
    done = edison(mini, "import", "prompt-yml", "wish.prompt.yml")
    assert done.code == 2
    assert "models.yaml does not contain gpt-4o-mini" in done.err
    assert "GitHub Models was retired on 2026-07-30" in done.out
    assert "provider: openai" in done.err
    assert "OPENAI_API_KEY" in done.err


def test_one_name_is_for_one_file(edison: Edison, source: Folder) -> None:
    done = edison(
        source, "import", "prompt-yml", "wish.prompt.yml", "wish.prompt.yml", "--name", "x"
    )
    assert (done.code, "--name needs a single file" in done.err) == (2, True)


SHARED = """\
prompts: [file://../shared/hello.txt]
providers: [echo]
tests: [{vars: {name: Ada}, assert: [{type: contains, value: Ada}]}]
"""


def test_files_outside_of_the_folder_are_read_below_a_root_that_is_named(
    edison: Edison, source: Folder
) -> None:
    source.write("team/evals/promptfooconfig.yaml", SHARED)
    source.write("team/shared/hello.txt", "Hello {{name}}")
    words = ("import", "promptfoo", "team/evals/promptfooconfig.yaml", "--into", "new")
    refused = edison(source, *words)
    assert refused.code == 2
    assert "file://../shared/hello.txt" in refused.out
    assert edison(source, *words, "--root", "team/evals").code == 2
    other = edison(source, *words, "--root", "new")
    assert (other.code, "is not below" in other.err) == (2, True)
    done = edison(source, *words, "--root", "team")
    assert done.code == 0, done.all
    assert "Hello {{name}}" in source.read("new/prompts/evals-hello.md")
    assert edison(source, "-C", "new", "run").code == 0


def test_no_reference_leaves_the_root(edison: Edison, source: Folder) -> None:
    source.write("secret.txt", "private")
    text = SHARED.replace("../shared/hello.txt", "../../secret.txt")
    source.write("team/evals/promptfooconfig.yaml", text)
    words = ("import", "promptfoo", "team/evals/promptfooconfig.yaml", "--into", "new")
    done = edison(source, *words, "--root", "team")
    assert (done.code, "is not read" in done.out) == (2, True)


def test_without_a_supported_provider_a_simulated_model_takes_its_place(
    edison: Edison, source: Folder
) -> None:
    source.write("x/promptfooconfig.yaml", CONFIG.replace("[echo]", "['file://app.py']"))
    done = edison(source, "import", "promptfoo", "x/promptfooconfig.yaml", "--into", "new")
    assert done.code == 0, done.all
    assert "programs are not run as providers" in done.out
    assert "the simulated model stand-in echoes the prompt" in done.out
    run = edison(source, "-C", "new", "run", "--json")
    assert json.loads(run.out)["runs"][0]["simulated"] is True


def test_after_an_early_stop_the_rest_was_not_reached(edison: Edison, source: Folder) -> None:
    source.write("x/promptfooconfig.yaml", CONFIG.replace("[echo]", "['openai:image:x']"))
    done = edison(source, "import", "promptfoo", "x/promptfooconfig.yaml", "--into", "new")
    assert done.code == 2
    assert "tests: not reached: none of its providers is supported" in done.out
    assert "unknown key" not in done.out


UNGRADED = """\
prompts: ["Say hello to {{name}}, who is a guest of ours, in a sentence."]
providers: [echo]
tests:
  - {vars: {name: Ada}, assert: [{type: contains, value: Ada}]}
  - {vars: {name: Bo}, assert: [{type: webhook, value: "https://hook.test"}]}
"""


def test_a_test_without_a_supported_assertion_is_not_graded(edison: Edison, source: Folder) -> None:
    source.write("x/promptfooconfig.yaml", UNGRADED)
    done = edison(source, "import", "promptfoo", "x/promptfooconfig.yaml", "--into", "new")
    assert "no assertion of 1 case is supported: they are not graded" in done.out
    (run,) = json.loads(edison(source, "-C", "new", "run", "--json").out)["runs"]
    assert (run["verdict"], run["cells"]["ok"], run["pass_rate"]["n"]) == ("pass", 2, 1)


def test_a_suite_without_supported_assertions_does_not_pass(edison: Edison, source: Folder) -> None:
    text = UNGRADED.replace("{type: contains, value: Ada}", "{type: ruby, value: x}")
    source.write("x/promptfooconfig.yaml", text)
    done = edison(source, "import", "promptfoo", "x/promptfooconfig.yaml", "--into", "new")
    assert done.code == 0, done.all
    (run,) = json.loads(edison(source, "-C", "new", "run", "--json").out)["runs"]
    assert (run["cells"]["ok"], run["pass_rate"], run["composite"]) == (2, None, None)


def test_one_failure_fails_the_run(edison: Edison, source: Folder) -> None:
    source.write("x/promptfooconfig.yaml", CONFIG.replace("value: Bo}", "value: Cy}"))
    assert (
        edison(source, "import", "promptfoo", "x/promptfooconfig.yaml", "--into", "new").code == 0
    )
    done = edison(source, "-C", "new", "run")
    assert done.code == 1
    assert "1 of 2 cases failed; all must pass." in done.out
