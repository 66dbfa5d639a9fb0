"""Git commands, run so that the repository they look at can run nothing.

No shell, and nothing that the repository's own configuration names is started: no hook,
file-system monitor, content filter, external diff or signature check. Only `fetch` and `push` need
what that configuration says about reaching the remote (`core.sshCommand`, `credential.helper`).
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.errors import UsageError
from edison_ci.extras import find_program, search_path
from edison_ci.rounding import fixed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

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
# What Git needs to find its user and its remote. All else stays behind: GIT_DIR and its kin would
# point it elsewhere, and the keys of model providers are none of its business.
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


class Answer(NamedTuple):
    """What one Git command said."""

    code: int
    out: bytes
    err: bytes

    @property
    def line(self) -> str:
        """The output without the newline at its end."""
        return text(self.out.removesuffix(b"\n"))

    @property
    def reason(self) -> str:
        """The last line of complaint, without the credentials that an address may contain."""
        lines = text(self.err).strip().splitlines() or ["no reason given"]
        return re.sub(r"//[^/@\s]*@", "//***@", lines[-1])


def text(raw: bytes) -> str:
    """Return what Git wrote as text, with surrogate escapes for what is not UTF-8."""
    return raw.decode("utf-8", "surrogateescape")


def run_git(
    *args: str, cwd: Path, stdin: bytes = b"", environment: Mapping[str, str] | None = None
) -> Answer:
    """Run one Git command in `cwd` and return what it said, whatever that is."""
    timeout_s = REMOTE_TIMEOUT_S if args[0] in _REMOTE else LOCAL_TIMEOUT_S
    process = start_git(*args, cwd=cwd, environment=environment, errors=True)
    try:
        return _finish(process, stdin, timeout_s=timeout_s)
    except subprocess.TimeoutExpired as late:
        raise UsageError(
            f"git {args[0]} did not finish within {fixed(timeout_s)} seconds",
            hint="try the same command by hand; the disk or the remote may be slow",
        ) from late


def start_git(
    *args: str, cwd: Path, environment: Mapping[str, str] | None = None, errors: bool = False
) -> subprocess.Popen[bytes]:
    """Start one Git command in `cwd`; whoever starts it ends it, and reads what it complains of."""
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
        start_new_session=True,  # away from the terminal: ssh fails rather than asks
    )


def ended(process: subprocess.Popen[bytes]) -> None:
    """End a Git that was kept, and its helpers, and let go of what connects us."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):  # what it no longer read
                stream.close()


def _finish(process: subprocess.Popen[bytes], stdin: bytes, *, timeout_s: float) -> Answer:
    with process:
        try:
            out, err = process.communicate(stdin, timeout=timeout_s)
        finally:
            if process.poll() is None:
                # Git's helpers (ssh, filters) are in its session and must not outlive it.
                os.killpg(process.pid, signal.SIGKILL)
    return Answer(process.returncode, out, err)


def _inherited() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.upper() in _INHERITED}
