"""Git commands, run so that a hostile repository can start nothing, and fetching history.

There is no shell, and nothing that the configuration of the repository names is started: no hook,
file-system monitor, content filter, external diff or signature check. Only `fetch` and `push` use
its settings for access to the remote (`core.sshCommand`, `credential.helper`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.errors import UsageError
from edison_ci.extras import find_program, search_path
from edison_ci.numeric import fixed

if TYPE_CHECKING:
    from collections.abc import Mapping

_REMOTE = frozenset({"fetch", "push"})
LOCAL_TIMEOUT_S = 120.0
REMOTE_TIMEOUT_S = 600.0

_SETTINGS = (
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.quotePath=false",
    "core.splitIndex=false",
    "diff.autoRefreshIndex=true",
    "diff.orderFile=/dev/null",
    "log.follow=false",
    "log.showRoot=true",
    "log.showSignature=false",
    "protocol.ext.allow=never",
)
_FORCED = {
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}
# What Git needs to find its user and its remote. Nothing else is passed on: GIT_DIR and similar
# variables would point it elsewhere, and it must not see the keys of model providers.
_INHERITED = {
    *("HOME", "LOGNAME", "TMPDIR", "USER", "XDG_CONFIG_HOME"),
    *("ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"),
    *("CURL_CA_BUNDLE", "SSL_CERT_DIR", "SSL_CERT_FILE"),
    *(
        "GIT_ASKPASS",
        "GIT_CONFIG_GLOBAL",
        "GIT_SSH",
        "GIT_SSH_COMMAND",
        "GIT_SSH_VARIANT",
        "GIT_SSL_CAINFO",
    ),
    *("SSH_AGENT_PID", "SSH_ASKPASS", "SSH_AUTH_SOCK"),
}


class GitOutput(NamedTuple):
    """The exit code and the output of a Git command."""

    code: int
    out: bytes
    err: bytes

    @property
    def line(self) -> str:
        """The output without its final newline."""
        return decode(self.out.removesuffix(b"\n"))

    @property
    def reason(self) -> str:
        """The last line of the error output, without credentials in URLs."""
        lines = decode(self.err).strip().splitlines() or ["no reason given"]
        return re.sub(r"//[^/@\s]*@", "//***@", lines[-1])


def decode(raw: bytes) -> str:
    """Return output of Git as text, with surrogate escapes for bytes that are not UTF-8."""
    return raw.decode("utf-8", "surrogateescape")


def run_git(
    *args: str, cwd: Path, stdin: bytes = b"", environment: Mapping[str, str] | None = None
) -> GitOutput:
    """Run a Git command in `cwd` and return its output, with any exit code."""
    timeout_s = REMOTE_TIMEOUT_S if args[0] in _REMOTE else LOCAL_TIMEOUT_S
    process = start_git(*args, cwd=cwd, environment=environment, errors=True)
    try:
        return _finish(process, stdin, timeout_s=timeout_s)
    except subprocess.TimeoutExpired as late:
        raise UsageError(
            f"git {args[0]} did not finish within {fixed(timeout_s)} seconds",
            hint="run the same command by hand: the disk or the remote may be slow",
        ) from late


def start_git(
    *args: str, cwd: Path, environment: Mapping[str, str] | None = None, errors: bool = False
) -> subprocess.Popen[bytes]:
    """Start a Git command in `cwd`; the caller ends it, and reads its error output if `errors`."""
    remote = args[0] in _REMOTE
    program = find_program("git")
    if program is None:
        raise UsageError(
            "Git is not installed, or not on PATH",
            hint="install Git, or run without --against and --changed-since",
        )
    settings = (*_SETTINGS, f"protocol.file.allow={'user' if remote else 'never'}")
    options = (part for setting in settings for part in ("-c", setting))
    words = (program, "--no-pager", "--literal-pathspecs", *options, *args)
    return subprocess.Popen(
        [word.encode("utf-8", "surrogateescape") for word in words],
        cwd=cwd,
        env={**_inherited(), "PATH": search_path(), **_FORCED, **(environment or {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if errors else subprocess.DEVNULL,
        start_new_session=True,  # no terminal, so that ssh fails instead of asking for a password
    )


def stop_git(process: subprocess.Popen[bytes]) -> None:
    """Kill a running Git and its helpers, and close the pipes to it."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):  # unread input cannot be flushed
                stream.close()


def _finish(process: subprocess.Popen[bytes], stdin: bytes, *, timeout_s: float) -> GitOutput:
    with process:
        try:
            out, err = process.communicate(stdin, timeout=timeout_s)
        finally:
            if process.poll() is None:
                # Git's helpers (ssh, filters) are in its session and must not outlive it.
                os.killpg(process.pid, signal.SIGKILL)
    return GitOutput(process.returncode, out, err)


def _inherited() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.upper() in _INHERITED}


logger = logging.getLogger(__name__)

DEEPENINGS = ("--deepen=8", "--deepen=16", "--deepen=32", "--deepen=64", "--deepen=128")
"""Steps by which a shallow clone is deepened before all of it is fetched."""


def remote_of(root: Path, ref: str = "") -> str | None:
    """Return the remote that a ref names, else `origin`, else the first one."""
    remotes = run_git("remote", cwd=root).line.splitlines()
    named = next((remote for remote in remotes if ref.startswith(f"{remote}/")), None)
    return named or ("origin" if "origin" in remotes else next(iter(remotes), None))


def fetch_branch(root: Path, branch: str) -> str:
    """Return the remote-tracking ref of a branch, fetched first if it is missing."""
    remote = remote_of(root)
    if remote is None:
        return f"refs/heads/{branch}"
    ref = f"refs/remotes/{remote}/{branch}"
    if run_git("rev-parse", "--verify", "--quiet", ref, cwd=root).code:
        fetch(root, remote, "--depth=1", wanted=f"+refs/heads/{branch}:{ref}")
    return ref


def deepen(root: Path, remote: str, more: str) -> bool:
    """Fetch more history of a shallow clone; return whether that worked."""
    # Fetching the commits where history is cut off deepens just those lines. From a remote that no
    # longer has one of them, or serves branches only, the configured refs are fetched.
    boundary = Path(root, run_git("rev-parse", "--git-path", "shallow", cwd=root).line)
    return fetch(root, remote, more, wanted=boundary.read_text()) or fetch(root, remote, more)


def fetch(root: Path, remote: str, depth: str, *, wanted: str = "") -> bool:
    """Fetch refspecs or commits, one a line; return whether that worked."""
    answer = run_git(
        *("fetch", "--quiet", "--no-tags", "--no-recurse-submodules", "--no-auto-maintenance"),
        *("--no-write-fetch-head", "--upload-pack=git-upload-pack", depth, "--stdin"),
        *("--end-of-options", remote),
        cwd=root,
        stdin=wanted.encode(),
    )
    if answer.code:
        logger.warning("could not fetch", extra={"remote": remote, "reason": answer.reason})
    return answer.code == 0
