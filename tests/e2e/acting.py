"""A repository, a forge and a model on this machine, and `act` to run workflows with them.

`act` runs on the host, without containers. Actions that talk to services of GitHub are replaced by
stand-ins. That of `actions/checkout` fetches from a bare repository, as deep as the workflow asks
for; by default it takes the commit of the working tree, which is the one that GitHub would name: of
a pull request, the commit that merges it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.conftest import ROOT, Folder
from tests.features.github.fake_github import TOKEN, FakeGitHub
from tests.features.github.fake_state import REPOSITORY
from tests.loopback.script import rule
from tests.timing import PATIENCE_S

if TYPE_CHECKING:
    from tests.loopback.server import LoopbackServer

ACTION = "edison-ci/edison-ci@" + "1" * 40
_CHECKOUT = """
git init --quiet "$GITHUB_WORKSPACE/$INPUT"
cd "$GITHUB_WORKSPACE/$INPUT"
git remote add origin "$ORIGIN"
if [ "$DEPTH" = 0 ]; then
  git fetch --quiet origin '+refs/heads/*:refs/remotes/origin/*'
  git fetch --quiet origin "${REF:-$GITHUB_SHA}"
else
  git fetch --quiet --depth="${DEPTH:-1}" origin "${REF:-$GITHUB_SHA}"
fi
git checkout --quiet --detach FETCH_HEAD
"""
STAND_INS = {
    "actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1": {"": _CHECKOUT},
    "actions/cache@27d5ce7f107fe9357f9df03efb73ab90386fccae": {
        "restore": 'while read -r to; do for f in "$KEPT"/cache/*/"$(basename "$to")"; do '
        'if [ -f "$f" ]; then mkdir -p "$(dirname "$to")" && cp "$f" "$to"; fi; done; done '
        '<<< "$INPUT"',
        "save": 'mkdir -p "$KEPT/cache/$KEY" && while read -r from; do '
        'if [ -f "$from" ]; then cp "$from" "$KEPT/cache/$KEY/"; fi; done <<< "$INPUT"',
    },
    "actions/upload-artifact@bbbca2ddaa5d8feaa63e36b76fdaad77386f024f": {
        "": 'to="$KEPT/artifacts/$NAME"; mkdir -p "$to"; '
        'if [ -d "$INPUT" ]; then cp -r "$INPUT/." "$to"; else cp "$INPUT" "$to"; fi',
    },
    "actions/download-artifact@3e5f45b2cfb9172054b4087a40e8e0b5a5461e7c": {
        "": 'mkdir -p "$INPUT" && cp -r "$KEPT/artifacts/$NAME/." "$INPUT"',
    },
}
"""What the actions of GitHub do that talk to its own services, as far as it matters here."""
_STAND_IN = """\
name: stand-in
description: Keeps files in a folder instead of sending them to GitHub.
inputs:
  {{path: {{}}, key: {{}}, restore-keys: {{}}, name: {{}}, run-id: {{}}, github-token: {{}},
    ref: {{}}, fetch-depth: {{}}, persist-credentials: {{}}}}
runs:
  using: composite
  steps:
    - shell: bash
      env:
        INPUT: ${{{{ inputs.path }}}}
        KEY: ${{{{ inputs.key }}}}
        NAME: ${{{{ inputs.name }}}}
        REF: ${{{{ inputs.ref }}}}
        DEPTH: ${{{{ inputs.fetch-depth }}}}
      run: {command}
"""
KEY = "sk-canary-of-the-model-0123456789abcdef"
"""No log, file or comment may hold it."""
CASES = 20
GOOD, BAD = "Answer in one kind sentence.", "Answer badly."
PROMPT = "---\nid: hello\n---\n# user\n{text} Greet {{{{ name }}}}, who has just come in.\n"
EXPERIMENT = """\
experiment: hello
objective: Greet people by their name in a friendly way.
prompts: [prompts/hello.md]
models: [small]
dataset: datasets/names.jsonl
checks:
  - contains: Welcome
gates:
  - {metric: composite, no_worse_than: base, margin: 20pp}
"""
MODEL = """\
small:
  provider: openai_compatible
  model: m
  base_url: {url}
  key_env: OPENAI_API_KEY
  price: {{in: 1, out: 2}}
"""
TRUST = "version: 1\nkeys:\n  - {{env: OPENAI_API_KEY, hosts: ['{host}']}}\n"
IGNORE = ".edison/*\n!.edison/trust.yaml\n!.edison/schemas/\n"


@dataclass(frozen=True)
class Done:
    """How a workflow ended."""

    code: int
    log: str
    kept: Path
    """Artifacts and caches."""

    @property
    def outputs(self) -> dict[str, str]:
        """The outputs of the step that evaluates."""
        return dict(re.findall(r"::set-output:: ([a-z-]+)=(.*)", self.log))

    @property
    def report(self) -> dict[str, Any]:
        """The report that was kept as an artifact."""
        path = self.kept / "artifacts" / "edison-report" / "report.json"
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found


@dataclass
class Bench:
    """A repository with a pull request, a model and a forge."""

    repository: Folder
    scratch: Path
    github: FakeGitHub
    model: LoopbackServer
    base: str = ""
    head: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(
        default_factory=lambda: {"OPENAI_API_KEY": KEY, "GITHUB_TOKEN": TOKEN}
    )

    # --- the repository ---------------------------------------------------------------------------

    def lay_out(self) -> None:
        """Make a project whose base trusts the model's host."""
        write, names = self.repository.write, range(CASES)
        write("edison.yaml", "version: 1\nproject: greetings\n")
        write("models.yaml", MODEL.format(url=self.model.openai_url))
        write("prompts/hello.md", PROMPT.format(text=GOOD))
        write("experiments/hello.yaml", EXPERIMENT)
        write("datasets/names.jsonl", "".join(f'{{"id": "c{n}", "name": "N{n}"}}\n' for n in names))
        write(".edison/trust.yaml", TRUST.format(host=self.model.url))
        write(".gitignore", IGNORE)
        self.model.script[:] = [rule(contains=BAD, text="No."), rule(text="Welcome, dear friend.")]
        git = self.repository.git
        git("init", "--quiet", "--initial-branch=main")
        git("remote", "add", "origin", f"https://github.com/{REPOSITORY}")
        self.commit("start")
        self.base = self.head = git("rev-parse", "HEAD")

    def commit(self, message: str) -> str:
        self.repository.git("add", "--all")
        self.repository.git("commit", "--quiet", "--message", message)
        return self.repository.git("rev-parse", "HEAD")

    def propose(self, **files: str) -> None:
        """Change files on a branch, and check out the commit that merges it, as GitHub does."""
        git = self.repository.git
        git("checkout", "--quiet", "-B", "topic", "main")
        for name, text in files.items():
            self.repository.write(name, text)
        self.head = self.commit("change")
        git("checkout", "--quiet", "--detach", "main")
        git("merge", "--quiet", "--no-ff", "--message", "merge", "topic")
        git("branch", "--force", "merged", "HEAD")
        self.github.state.pulls[1].head_sha = self.head

    def propose_prompt(self, text: str) -> None:
        self.propose(**{"prompts/hello.md": PROMPT.format(text=text)})

    # --- events -----------------------------------------------------------------------------------

    def pull_request(self, *, fork: bool = False) -> dict[str, Any]:
        ours = {"id": 1, "full_name": REPOSITORY, "owner": {"login": "acme"}}
        theirs = {"id": 2, "full_name": "eve/prompts", "owner": {"login": "eve"}} if fork else ours
        pull = {
            "number": 1,
            "draft": False,
            "head": {"sha": self.head, "ref": "topic", "repo": theirs},
            "base": {"sha": self.base, "ref": "main", "repo": ours},
        }
        return {"action": "synchronize", "number": 1, "pull_request": pull}

    # --- running ----------------------------------------------------------------------------------

    def command(self, workflow: str, event: str, payload: dict[str, Any], *more: str) -> list[str]:
        about = {"full_name": REPOSITORY, "default_branch": "main", "owner": {"login": "acme"}}
        file = self.scratch / "event.json"
        file.write_text(json.dumps({"repository": about, **payload}), encoding="utf-8")
        given = {
            "GITHUB_API_URL": self.github.url,
            "GITHUB_SERVER_URL": self.github.url,
            "EDISON_ENVIRONMENT": str(ROOT / ".tools" / "smoke"),
            "KEPT": str(self.scratch / "kept"),
            "ORIGIN": self._origin().as_uri(),
            **self.environment,
        }
        return [
            *(str(Path(sys.executable).parent / "act"), event, "--eventpath", str(file)),
            *("--platform", "ubuntu-latest=-self-hosted", "--no-cache-server", "--pull=false"),
            *("--action-cache-path", str(self.scratch / "act"), "--action-offline-mode"),
            *("--workflows", f".github/workflows/{workflow}", "--no-skip-checkout"),
            "--insecure-secrets",  # we are to keep them out of the log, not act
            *_pairs("--local-repository", self._repositories()),
            *_pairs("--secret", self.secrets),
            *_pairs("--env", given),
            *more,
        ]

    def _origin(self) -> Path:
        """Push everything, as GitHub would have it, to a repository that can be fetched from."""
        origin, git = self.scratch / "origin.git", self.repository.git
        if not origin.exists():
            git("init", "--quiet", "--bare", str(origin))
            git("-C", str(origin), "config", "uploadpack.allowAnySHA1InWant", "true")
        refs = ["+refs/heads/*:refs/heads/*", "+HEAD:refs/jobs/commit"]
        if git("branch", "--list", "merged"):
            refs.append("+merged:refs/pull/1/merge")
        git("push", "--quiet", origin.as_uri(), *refs)
        return origin

    def _repositories(self) -> dict[str, str]:
        """Return where the actions of others are found."""
        found = {ACTION: str(self.scratch / "action")}
        for name, commands in STAND_INS.items():
            folder = self.scratch / "stand-ins" / name.partition("@")[0]
            found[name] = str(folder)
            for part, command in commands.items():
                (folder / part).mkdir(parents=True, exist_ok=True)
                text = _STAND_IN.format(command=json.dumps(command))
                (folder / part / "action.yml").write_text(text, encoding="utf-8")
        return found

    def act(self, workflow: str, event: str, payload: dict[str, Any], *more: str) -> Done:
        """Run a workflow of the repository for an event, to its end."""
        done = subprocess.run(
            self.command(workflow, event, payload, *more),
            cwd=self.repository.path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=PATIENCE_S,
            check=False,
        )
        return Done(done.returncode, done.stdout.decode(), self.scratch / "kept")

    # --- what is there afterwards -----------------------------------------------------------------

    @property
    def comments(self) -> list[str]:
        return [str(comment["body"]) for comment in self.github.state.comments.values()]

    def assert_no_secret(self, done: Done) -> None:
        """No key and no token is in any log, comment, report, result or left-over of the job."""
        canaries = [text.encode() for text in (KEY, TOKEN, *self.secrets.values())]
        seen = [done.log.encode(), *(body.encode() for body in self.comments)]
        seen += [p.read_bytes() for p in self.scratch.rglob("*") if _is_ours(p)]
        seen += [p.read_bytes() for p in self.repository.path.rglob("*") if _is_ours(p)]
        for data in seen:
            assert not any(canary in data for canary in canaries)


def _is_ours(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _pairs(option: str, values: dict[str, str]) -> list[str]:
    return [word for name, value in values.items() for word in (option, f"{name}={value}")]


def lay_out_action(target: Path) -> None:
    """Copy what `uses:` would fetch: the action, its requirements and the package."""
    target.mkdir()
    shutil.copy(ROOT / "action.yml", target)
    leave_out = shutil.ignore_patterns("__pycache__", ".edison", "node")
    for name in ("requirements", "edison_ci", "schemas", "examples"):
        shutil.copytree(ROOT / name, target / name, ignore=leave_out)


def needs_environment() -> None:
    """Say how to get what the tests use, instead of installing it again and again."""
    wanted, found = ROOT / "requirements" / "run.txt", ROOT / ".tools" / "smoke"
    made = found / "requirements.txt"
    ready = made.exists() and made.read_bytes() == wanted.read_bytes()
    assert ready, f"{os.path.relpath(found, ROOT)} is not there or old: run make wheel-smoke"
