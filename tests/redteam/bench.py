"""A job on GitHub, on this machine, in which an attack is tried with an installed edison.

A `Site` has the servers: a model that may have one key, a thief that may have nothing, and GitHub.
A `Scene` is one job: a repository with a base and a proposed head, merged as GitHub does, the
runner's event and variables, and canaries in variables and in files that earlier steps left.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from edison_ci.feature import WITHOUT, features
from tests import forked
from tests.features.github.conftest import open_pull
from tests.features.github.fake_github import FakeGitHub
from tests.features.github.fake_state import REPOSITORY, Grant
from tests.loopback.script import rule
from tests.loopback.server import LoopbackServer
from tests.report.runner import read_outputs

if TYPE_CHECKING:
    from pathlib import Path

    from tests.redteam.attack import Variant
    from tests.redteam.watch import Canaries

CASES = 40
OF_THIS_MACHINE = {"LANG", "LC_ALL", "LC_CTYPE", "PYTHONUNBUFFERED"}
"""Variables that are as they are: then a process can be forked, in tests."""
GOOD, BAD = "Answer in one kind sentence.", "Answer badly."
KEY = "VENDOR_API_KEY"
"""The variable whose value may go to the model, and nowhere else."""
TOKEN = "GITHUB_TOKEN"
VARIABLES = (
    KEY, TOKEN, "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "AZURE_OPENAI_API_KEY",
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "ACTIONS_RUNTIME_TOKEN",
    "ACTIONS_ID_TOKEN_REQUEST_TOKEN", "DATABASE_PASSWORD", "NOTE_OF_THE_RUNNER",
)  # fmt: skip
FILES = ("home/.netrc", "home/.aws/credentials", "home/.ssh/id_ed25519", "temp/gha-creds-1.json")
"""Files of the runner, outside of the checkout; `.env` and `.git/config` are within."""
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
  - {metric: composite, no_worse_than: base, margin: 10pp}
"""
MODEL = (
    "small: {{provider: openai_compatible, model: m, base_url: '{url}/v1', "
    f"key_env: {KEY}, price: {{{{in: 1, out: 2}}}}}}}}\n"
)
TRUST = f"version: 1\nkeys:\n  - {{{{env: {KEY}, hosts: ['{{host}}']}}}}\n"
IGNORE = ".edison/*\n!.edison/trust.yaml\n!.edison/schemas/\n.env\n"
_AUTHOR = {
    f"GIT_{role}_{part}": value
    for role in ("AUTHOR", "COMMITTER")
    for part, value in (("NAME", "Eve"), ("EMAIL", "eve@example.com"))
}


def others_than(command: tuple[str, ...]) -> str:
    """Return all features but the one that the command belongs to: without it, nothing is run."""
    lines = (" ".join(command[:end]) for end in (1, 2))
    own = {each.name for line in lines for each in features() if line in each.commands}
    return ",".join(each.name for each in features() if each.name not in own)


class Site:
    """The servers that the jobs of one worker share; a context manager."""

    def __init__(
        self,
        folder: Path,
        edison: tuple[str, ...],
        canaries: Canaries,
        *,
        extras: str = "",
        bare: bool = False,
    ) -> None:
        self.folder, self.edison, self.canaries, self.bare = folder, edison, canaries, bare
        self.with_extras = (extras,) if extras else edison
        self.model, self.thief = LoopbackServer(), LoopbackServer()
        self.github = FakeGitHub()
        self._stack = contextlib.ExitStack()
        self._number = 0

    def __enter__(self) -> Self:
        for server in (self.model, self.thief, self.github):
            self._stack.enter_context(server)
        self.github.grants[self.canaries.values[TOKEN]] = Grant()
        open_pull(self.github)
        self._lay_out(self.folder / "template")
        return self

    def __exit__(self, *_: object) -> None:
        self.github.violations.clear()  # told with the variant that made them
        self._stack.close()

    def _lay_out(self, repository: Path) -> None:
        repository.mkdir()
        scene = Scene(self, repository.parent, repository)
        scene.write("edison.yaml", "version: 1\nproject: greetings\n")
        scene.write("models.yaml", MODEL.format(url=self.model.url))
        scene.write("prompts/hello.md", PROMPT.format(text=GOOD))
        scene.write("experiments/hello.yaml", EXPERIMENT)
        rows = (f'{{"id": "c{number}", "name": "N{number}"}}\n' for number in range(CASES))
        scene.write("datasets/names.jsonl", "".join(rows))
        scene.write(".edison/trust.yaml", TRUST.format(host=self.model.url))
        scene.write(".gitignore", IGNORE)
        scene.git("init", "--quiet", "--initial-branch=main")
        scene.git("remote", "add", "origin", f"https://github.com/{REPOSITORY}")
        scene.commit("base")

    def scene(self, variant: Variant) -> Scene:
        """Return a job for one variant, in a folder of its own."""
        self._number += 1
        folder = self.folder / f"job-{self._number}"
        shutil.copytree(self.folder / "template", folder / "repository", symlinks=True)
        self.model.ledger.unlink(missing_ok=True)
        self.github.state.comments.clear()
        self.github.violations.clear()
        for server in (self.model, self.thief, self.github):
            server.requests.clear()
        usual = (rule(contains=BAD, text="No."), rule(text="Welcome, dear friend."))
        self.model.script[:] = [*variant.script, *usual]
        return Scene(self, folder, folder / "repository")


@dataclass
class Done:
    """How a job ended."""

    code: int | None
    """None if it had to be killed."""
    out: bytes
    err: bytes
    seconds: float
    outputs: dict[str, str] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """What was decided, as the job's output says; without one, what the exit code means."""
        told = {None: "killed", 0: "ended with 0", 1: "fail", 2: "error", 5: "inconclusive"}
        return self.outputs.get("verdict") or told.get(self.code, f"exit {self.code}")


@dataclass
class Scene:
    """One job: the repository, the folder of the runner, and what is run in it."""

    site: Site
    folder: Path
    path: Path
    """The repository."""
    base: str = ""
    head: str = ""

    # --- files ------------------------------------------------------------------------------------

    def write(self, name: str, text: str | bytes) -> Path:
        target = self.path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text.encode() if isinstance(text, str) else text)
        return target

    def read(self, name: str) -> str:
        return (self.path / name).read_text(encoding="utf-8")

    def edit(self, name: str, old: str, new: str) -> None:
        text = self.read(name)
        if old not in text:
            raise ValueError(f"{old!r} is not in {name}")
        self.write(name, text.replace(old, new, 1))

    def add(self, name: str, text: str) -> None:
        self.write(name, self.read(name) + text)

    def link(self, name: str, target: str) -> None:
        """Put a link in the place of a file or folder; `{folder}` is the scene's own."""
        path = self.path / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target.format(folder=self.folder))

    def worsen(self) -> None:
        """Make the prompt worse, which its gate has to notice."""
        self.write("prompts/hello.md", PROMPT.format(text=BAD))

    # --- git --------------------------------------------------------------------------------------

    def git(self, *args: str) -> str:
        environ = {"PATH": os.environ["PATH"], "HOME": str(self.folder), **_AUTHOR}
        done = subprocess.run(
            ["git", "-c", "core.hooksPath=/dev/null", "-c", "gc.auto=0", *args],
            cwd=self.path,
            env=environ,
            capture_output=True,
            check=True,
        )
        return done.stdout.decode().strip()

    def commit(self, message: str, *options: str) -> str:
        self.git("add", "--all", "--force")
        self.git("commit", "--quiet", "--allow-empty", "--message", message, *options)
        return self.git("rev-parse", "HEAD")

    # --- the job ----------------------------------------------------------------------------------

    def prepare(self, variant: Variant) -> None:
        """Commit base and head, check out what merges them, and leave the files of the runner."""
        if variant.base is not None:
            variant.base(self)
        self.base = self.commit("base", "--amend")
        self.git("checkout", "--quiet", "-b", "topic")
        variant.change(self)
        self.head = self.commit("change")
        self.git("checkout", "--quiet", "--detach", "main")
        self.git("merge", "--quiet", "--no-ff", "--message", "merge", "topic")
        self.site.github.state.pulls[1].head_sha = self.head
        canaries = self.site.canaries.values
        for name in FILES:
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            text = (
                json.dumps({"enum": [canaries[name]]}) if name.endswith(".json") else canaries[name]
            )
            path.write_text(f"{text}\n", encoding="utf-8")
        self.write(".env", f"{canaries['.env']}\n")
        self.git("config", "http.extraheader", f"Authorization: basic {canaries['.git/config']}")
        if variant.left is not None:
            variant.left(self)

    def pull_request(self, *, fork: bool = False) -> dict[str, Any]:
        ours = {"id": 1, "full_name": REPOSITORY, "owner": {"login": "acme"}, "fork": False}
        theirs = {"id": 2, "full_name": "eve/prompts", "owner": {"login": "eve"}}
        pull = {
            "number": 1,
            "draft": False,
            "head": {"sha": self.head, "ref": "topic", "repo": theirs if fork else ours},
            "base": {"sha": self.base, "ref": "main", "repo": ours},
        }
        return {"action": "synchronize", "number": 1, "pull_request": pull}

    def environ(self, variant: Variant) -> dict[str, str]:
        """Return the variables of the step, with the event written where they say."""
        name, payload, ref = "pull_request", self.pull_request(), "refs/pull/1/merge"
        if variant.started is not None:
            name, payload, ref = variant.started(self)
        about = {"id": 1, "full_name": REPOSITORY, "default_branch": "main"}
        event = self.folder / "event.json"
        event.write_text(json.dumps({"repository": about, **payload}), encoding="utf-8")
        proxy = dict.fromkeys(("HTTPS_PROXY", "HTTP_PROXY"), self.site.thief.url)
        given = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder / "home"),
            **{name: text for name, text in os.environ.items() if name in OF_THIS_MACHINE},
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_ACTOR": "eve",
            "GITHUB_API_URL": self.site.github.url,
            "GITHUB_SERVER_URL": self.site.github.url,
            "GITHUB_REPOSITORY": REPOSITORY,
            "GITHUB_WORKSPACE": str(self.path),
            "GITHUB_EVENT_NAME": name,
            "GITHUB_EVENT_PATH": str(event),
            "GITHUB_REF": ref,
            "GITHUB_SHA": self.git("rev-parse", "HEAD"),
            "GITHUB_RUN_ID": "1",
            "GITHUB_JOB": "evaluate",
            "GITHUB_OUTPUT": str(self.folder / "outputs"),
            "GITHUB_STEP_SUMMARY": str(self.folder / "summary.md"),
            "RUNNER_TEMP": str(self.folder / "temp"),
            "GOOGLE_APPLICATION_CREDENTIALS": str(self.folder / "temp/gha-creds-1.json"),
            **{variable: self.site.canaries.values[variable] for variable in VARIABLES},
            **({**proxy, "NO_PROXY": "127.0.0.1"} if variant.proxied else {}),
            **({WITHOUT: others_than(variant.command)} if self.site.bare else {}),
        }
        places = {"folder": self.folder, "thief": self.site.thief.url, "base": self.base}
        more = {name: value.format(**places) for name, value in variant.environ.items()}
        return {**given, **more}

    def run(self, variant: Variant) -> Done:
        """Run the command of a variant to its end, or kill it when its time is over."""
        start = time.monotonic()
        process = forked.Popen(
            [*self._edison(), *variant.command],
            cwd=self.path,
            env=self.environ(variant),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            out, err = process.communicate(timeout=variant.limit_s)
            code: int | None = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # the group that was made for it
            (out, err), code = process.communicate(), None
        done = Done(code, out, err, time.monotonic() - start)
        outputs = self.folder / "outputs"
        if outputs.is_file():
            done.outputs = read_outputs(outputs.read_text(encoding="utf-8", errors="replace"))
        elif "--json" in variant.command:
            with contextlib.suppress(ValueError):
                done.outputs = {"verdict": str(json.loads(out).get("verdict") or "")}
        return done

    def _edison(self) -> tuple[str, ...]:
        """Return the edison that can do what the models of this job ask for."""
        models = self.path / "models.yaml"
        through = models.is_file() and b"litellm" in models.read_bytes()
        return self.site.with_extras if through else self.site.edison

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
