"""Keys that look leaked: in new lines only, with few false alarms and few misses."""

from __future__ import annotations

import string
from random import Random
from typing import TYPE_CHECKING

import pytest

from edison_ci.config.validation import leaked_keys
from edison_ci.documents.secrets import leaked_in
from edison_ci.resources import resource_folder

if TYPE_CHECKING:
    from tests.conftest import Edison, Folder

BASE62 = string.ascii_letters + string.digits
HEX = "0123456789abcdef"
FORMS = {
    "OpenAI": ("sk-proj-", BASE62, 48),
    "DeepSeek": ("sk-", HEX, 32),
    "Anthropic": ("sk-ant-api03-", BASE62, 90),
    "AWS": ("AKIA", string.ascii_uppercase + "234567", 16),
    "GitHub": ("ghp_", BASE62, 36),
    "Google": ("AIza", BASE62, 35),
    "Hugging Face": ("hf_", BASE62, 34),
    "Groq": ("gsk_", BASE62, 52),
    "xAI": ("xai-", BASE62, 80),
    "Perplexity": ("pplx-", BASE62, 48),
    "Replicate": ("r8_", BASE62, 37),
    "Stripe": ("sk_live_", BASE62, 24),
    "edison": ("edison_key_", BASE62, 43),
}


def made(form: str, random: Random) -> str:
    start, letters, length = FORMS[form]
    return start + "".join(random.choice(letters) for _ in range(length))


@pytest.mark.parametrize("form", FORMS)
def test_nearly_every_random_key_is_found(form: str) -> None:
    random = Random(form)
    keys = [made(form, random) for _ in range(1_000)]
    missed = [key for key in keys if not [*leaked_in(f'key = "{key}"\n')]]
    assert len(missed) <= 10


@pytest.mark.parametrize(
    "text",
    [
        "sk-your-api-key-goes-here-please",
        "OPENAI_API_KEY=sk-xxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        "AKIAIOSFODNN7EXAMPLE",
        "sk-proj-replace-this-with-your-own-key",
        "https://user:example@host.example/",
        "pip install sk-learn-contrib-and-other-things",
    ],
)
def test_examples_of_manuals_are_left_alone(text: str) -> None:
    assert [*leaked_in(text)] == []


def test_the_templates_raise_no_alarm() -> None:
    found = {
        path.name: told
        for path in resource_folder("examples").rglob("*")
        if path.is_file() and (told := [*leaked_in(path.read_text("utf-8", "replace"))])
    }
    assert found == {}


def test_a_line_may_say_that_it_is_none() -> None:
    key = made("OpenAI", Random(1))
    assert [*leaked_in(f"a: {key}  # not-a-secret\n")] == []
    (fault,) = leaked_in(f"# not-a-secret\nb: {key}\n")
    assert (fault.at, key in fault.message) == ((1, 3), False)


def test_a_new_key_in_a_diff_stops_validate_and_an_old_one_does_not(
    edison: Edison, mini: Folder
) -> None:
    old, new = (made("Anthropic", Random(seed)) for seed in (1, 2))
    mini.git("init", "--quiet", "--initial-branch=main")
    for key, value in (("user.name", "Ada"), ("user.email", "ada@example.com")):
        mini.git("config", key, value)
    mini.write("notes/old.txt", f"first\n{old}\n")
    mini.git("add", ".")
    mini.git("commit", "--quiet", "--message", "base")
    assert leaked_keys(mini.path) == []
    mini.git("checkout", "--quiet", "-b", "topic")
    mini.write("notes/old.txt", f"zeroth\nfirst\n{old}\n")
    mini.write("tools/call.py", f"\nKEY = '{new}'\n")
    mini.git("add", ".")
    mini.git("commit", "--quiet", "--message", "change")
    done = edison(mini, "validate")
    assert done.code == 2
    assert "tools/call.py:2:8: error: this looks like an Anthropic key (sk-a...)" in done.all
    assert "old.txt" not in done.all and new not in done.all
    mini.write("tools/call.py", f"\nKEY = '{new}'  # not-a-secret\n")
    assert edison(mini, "validate").code == 0
    mini.write("tools/call.py", "\n")
    mini.write("untracked.env", f"KEY={new}\n")
    assert [problem.where.file for problem in leaked_keys(mini.path)] == ["untracked.env"]


def test_without_git_every_file_is_searched(mini: Folder) -> None:
    key = made("GitHub", Random(3))
    mini.write("datasets/names.jsonl", f'{{"id": "ada", "name": "{key}"}}\n')
    mini.write("node_modules/x/index.js", key)
    mini.write("picture.png", b"\0" + key.encode())
    (problem,) = leaked_keys(mini.path)
    assert (problem.where.file, problem.where.line, problem.code) == (
        *("datasets/names.jsonl", 1, "leaked-key"),
    )
