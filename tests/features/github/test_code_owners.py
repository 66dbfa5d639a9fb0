"""CODEOWNERS: which line counts for a file, and the section that is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from edison_ci.access.site import Role
from edison_ci.config.load import load_project
from edison_ci.config.project import Member
from edison_ci.errors import UsageError
from edison_ci.features.github.code_owners import (
    BEGIN,
    END,
    OwnedPath,
    owned_paths,
    read_rules,
    rule_of,
    section,
    with_section,
)

if TYPE_CHECKING:
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

ADA = Member(github="ada", role="owner")
BOB = Member(email="bob@example.org", role="reviewer")
EVE = Member(github="eve", role="viewer")

PATTERNS = [
    # The examples of GitHub's documentation of CODEOWNERS.
    ("*", "a/b.md", True),
    ("*.js", "src/deep/a.js", True),
    ("*.js", "a.json", False),
    ("/build/logs/", "build/logs/2026/a.log", True),
    ("/build/logs/", "src/build/logs/a.log", False),
    ("docs/*", "docs/getting-started.md", True),
    ("docs/*", "docs/build-app/troubleshooting.md", False),
    ("apps/", "src/apps/web/a.py", True),
    ("apps/", "apps", False),
    ("/docs/", "docs/a.md", True),
    ("/docs/", "src/docs/a.md", False),
    ("**/logs", "build/logs/a.log", True),
    ("**/logs", "scripts/logs/b", True),
    ("/apps/github", "apps/github/a.py", True),
    ("/models.yaml", "models.yaml", True),
    ("/models.yaml", "sub/models.yaml", False),
    ("/a\\ b/", "a b/c.md", True),
    ("prompts/?.md", "prompts/a.md", True),
    ("prompts/?.md", "prompts/ab.md", False),
]


def test_a_pattern_matches_as_github_documents(subtests: pytest.Subtests) -> None:
    for pattern, path, matches in PATTERNS:
        with subtests.test(pattern=pattern, path=path):
            assert (rule_of(read_rules(f"{pattern} @ada"), path) is not None) is matches


def test_the_last_line_that_matches_counts_and_may_have_no_owner() -> None:
    rules = read_rules(
        "# all\n* @ada @acme/team # note\n\n/prompts/ bob@example.org\n/prompts/x.md\n"
    )
    assert [rule.line for rule in rules] == [2, 4, 5]
    assert rule_of(rules, "README.md") == (2, "*", ("@ada", "@acme/team"))
    assert rule_of(rules, "prompts/a.md") == (4, "/prompts/", ("bob@example.org",))
    assert rule_of(rules, "prompts/x.md") == (5, "/prompts/x.md", ())


def test_reviewers_own_what_is_evaluated_and_admins_what_decides_about_trust(mini: Folder) -> None:
    mini.edit("edison.yaml", "project: mini\n", "project: mini\npaths: {prompts: my prompts}\n")
    mini.write("shared/names.jsonl", mini.read("datasets/names.jsonl"))
    mini.edit("experiments/hello.yaml", "datasets/names.jsonl", "shared/names.jsonl")
    project = load_project(mini.path)
    lines = section(owned_paths(project, "sub/"), [ADA, BOB, EVE])
    assert (lines[0], lines[-1]) == (BEGIN, END)
    owners = {words[0]: words[1:] for line in lines[1:-1] for words in [line.split()]}
    assert lines[1].startswith("/sub/my\\ prompts/ ")
    assert owners["/sub/experiments/"] == ["@ada", "bob@example.org"]
    assert owners["/sub/shared/names.jsonl"] == owners["/sub/prompts/hello.md"]
    assert owners["/sub/prompts/hello.md"] == ["@ada", "bob@example.org"]
    assert owners["/sub/edison.yaml"] == owners["/sub/.edison/"] == owners["/.github/"] == ["@ada"]
    assert "@eve" not in "".join(lines)
    assert section(owned_paths(project), []) == []
    # Nobody is an admin: no line is better than one by which everyone may approve.
    assert not any("edison.yaml " in line for line in section(owned_paths(project), [BOB])[1:])


def test_the_section_is_replaced_and_other_lines_stay() -> None:
    wanted = [BEGIN, "/prompts/ @ada", END]
    first = with_section("* @acme/all\r\n\r\n", wanted, "CODEOWNERS")
    assert first == f"* @acme/all\r\n\r\n{BEGIN}\r\n/prompts/ @ada\r\n{END}\r\n"
    assert with_section(first, wanted, "CODEOWNERS") == first
    after = with_section(f"{first}/docs/ @bob\r\n", wanted, "CODEOWNERS")
    assert after == f"* @acme/all\r\n\r\n/docs/ @bob\r\n\r\n{BEGIN}\r\n/prompts/ @ada\r\n{END}\r\n"
    assert with_section(first, [], "CODEOWNERS") == "* @acme/all\r\n"
    assert with_section("", wanted, "CODEOWNERS").startswith(BEGIN)


@pytest.mark.parametrize("text", [BEGIN, END, f"{END}\n{BEGIN}", f"{BEGIN}\n{BEGIN}\n{END}\n{END}"])
def test_marks_that_do_not_pair_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="do not pair"):
        with_section(text, [], "CODEOWNERS")


def test_a_path_that_codeowners_cannot_name_is_refused() -> None:
    with pytest.raises(UsageError, match=r"contains '\['"):
        _ = OwnedPath("prompts[1]/", Role.REVIEWER).pattern
