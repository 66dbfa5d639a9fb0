"""The host of a repository: its remote, its address on GitHub, and the token for it.

In GitHub Actions, also on GitHub Enterprise, the variables of the runner name the host. Elsewhere
the remote `origin` does, but only for github.com: a token is never sent to a host that is named by
the configuration of a clone alone.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import field
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from edison_ci._dataclass import dataclass
from edison_ci.errors import UsageError
from edison_ci.git.command import remote_of, run_git
from edison_ci.git.repository import Repository

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

RUN_WORKFLOW = "edison-run.yml"
"""The workflow of a repository that runs an experiment for a server without keys."""


# In GitHub Actions commits are made through the API, so that GitHub signs them; elsewhere by Git,
# with Git's own credentials. A token is used to open, review and close pull requests only. Without
# one, or on another host, changes are proposed as branches and patches.
@dataclass(frozen=True, slots=True)
class RepositoryHost:
    """The host of a repository, as far as it can be reached from this machine."""

    remote: str | None = None
    """The remote that branches are pushed to; None keeps them in this clone."""
    url: str | None = None
    """The URL of the remote."""
    address: RepositoryAddress | None = None
    """The repository on GitHub; None without a token."""
    by_api: bool = False
    """Whether commits are made through the API of GitHub instead of pushed."""

    def compare_url(self, base: str, branch: str) -> str | None:
        """Return the URL of the page that opens a pull request; None if it is not known."""
        if self.address is not None:
            return self.address.compare_url(base, branch)
        return compare_link(self.url, base, branch)


def find_host(
    repository: Repository, environment: Mapping[str, str], *, offline: bool = False
) -> RepositoryHost:
    """Return the host of a repository; with `offline` there is none."""
    if offline:
        return RepositoryHost()
    remote = remote_of(repository.root)
    url = None
    if remote is not None:
        answer = run_git("config", "--get", f"remote.{remote}.url", cwd=repository.root)
        url = answer.line if answer.code == 0 else None
    token = any(environment.get(name) for name in TOKEN_VARIABLES)
    named = environment.get("GITHUB_REPOSITORY") or github_name(url)
    address = repository_address(environment, remote=url) if token and named else None
    in_actions = environment.get("GITHUB_ACTIONS") == "true"
    return RepositoryHost(remote, url, address, by_api=in_actions and address is not None)


def find_address(root: Path, environment: Mapping[str, str]) -> RepositoryAddress:
    """Return the repository on GitHub that a folder belongs to.

    Raises UsageError without a token or without a repository.
    """
    repository = Repository.find(root)
    host = None if repository is None else find_host(repository, environment)
    if host is not None and host.address is not None:
        return host.address
    return repository_address(environment)


PUBLIC_API = "https://api.github.com"
PUBLIC_SERVER = "https://github.com"
TOKEN_VARIABLES = ("GITHUB_TOKEN", "GH_TOKEN")

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}/[A-Za-z0-9_.-]{1,100}")
_REMOTE = re.compile(
    r"(?:https://(?:[^@/]*@)?github\.com/|ssh://git@github\.com/|git@github\.com:)"
    r"([A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+?)(?:\.git)?/?"
)
_TOKEN = re.compile(r"[\x21-\x7e]{1,4096}")


@dataclass(frozen=True, slots=True)
class RepositoryAddress:
    """A repository on GitHub or GitHub Enterprise."""

    repository: str
    """`owner/name`."""
    token: str = field(repr=False)
    api_url: str = PUBLIC_API
    server_url: str = PUBLIC_SERVER

    def __post_init__(self) -> None:
        owner, _, name = self.repository.partition("/")
        if not _NAME.fullmatch(self.repository) or {owner, name} & {".", ".."}:
            raise UsageError(
                f"{self.repository!r} is not the name of a repository on GitHub",
                hint="set GITHUB_REPOSITORY to owner/name",
            )
        if not _TOKEN.fullmatch(self.token):
            raise UsageError(
                "the GitHub token is not valid: it contains a space or a line break, or is too "
                "long",
                hint="check the value of GITHUB_TOKEN or GH_TOKEN",
            )
        for url in (self.api_url, self.server_url):
            refuse_unsafe_url(url)

    @property
    def owner(self) -> str:
        """The owner in `owner/name`."""
        return self.repository.partition("/")[0]

    @property
    def repository_url(self) -> str:
        """The URL of the repository in the API."""
        return f"{self.api_url.rstrip('/')}/repos/{self.repository}"

    def run_url(self, run_id: int) -> str:
        """Return the URL of a workflow run."""
        return f"{self.server_url.rstrip('/')}/{self.repository}/actions/runs/{run_id}"

    def workflow_url(self, file: str) -> str:
        """Return the URL of the page that lists the runs of a workflow."""
        place = f"{self.server_url.rstrip('/')}/{self.repository}"
        return f"{place}/actions/workflows/{quote(file, safe='')}"

    def compare_url(self, base: str, branch: str) -> str:
        """Return the URL of the page that opens a pull request."""
        return _compare(f"{self.server_url.rstrip('/')}/{self.repository}", base, branch)


def repository_address(
    environment: Mapping[str, str], *, remote: str | None = None
) -> RepositoryAddress:
    """Return the repository that the environment names, else that of the URL `remote`.

    Raises UsageError without a token or without a repository.
    """
    token = next((environment[name] for name in TOKEN_VARIABLES if environment.get(name)), "")
    if not token:
        raise UsageError(
            "there is no token for GitHub: neither GITHUB_TOKEN nor GH_TOKEN is set",
            hint="in a workflow: env: {GITHUB_TOKEN: '${{ github.token }}'}; "
            "elsewhere: export GITHUB_TOKEN",
        )
    named = environment.get("GITHUB_REPOSITORY") or github_name(remote)
    if not named:
        raise UsageError(
            "cannot tell which repository on GitHub this is: GITHUB_REPOSITORY is not set, and "
            "the remote is not on github.com",
            hint="set GITHUB_REPOSITORY=owner/name, and GITHUB_API_URL for GitHub Enterprise",
        )
    return RepositoryAddress(
        named,
        token.strip(),
        environment.get("GITHUB_API_URL") or PUBLIC_API,
        environment.get("GITHUB_SERVER_URL") or PUBLIC_SERVER,
    )


def github_name(remote: str | None) -> str | None:
    """Return `owner/name` of a remote on github.com."""
    match = _REMOTE.fullmatch(remote or "")
    return match[1] if match else None


def compare_link(remote: str | None, base: str, branch: str) -> str | None:
    """Return the URL of the page that opens a pull request, for a remote on github.com."""
    named = github_name(remote)
    return _compare(f"{PUBLIC_SERVER}/{named}", base, branch) if named else None


def _compare(place: str, base: str, branch: str) -> str:
    return f"{place}/compare/{quote(base, safe='/')}...{quote(branch, safe='/')}?expand=1"


def refuse_unsafe_url(url: str) -> None:
    """Raise UsageError for an address of GitHub that a secret must not be sent to."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        host, parts = "", urlsplit("")
    encrypted = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))
    plain = not (parts.username or parts.password or parts.query or parts.fragment)
    if not (host and encrypted and plain):
        raise UsageError(
            # Without user and query, which may be secret.
            f"the token may not be sent to {host or 'a URL without a host'!r}",
            hint="GITHUB_API_URL and GITHUB_SERVER_URL must start with https:// and contain no "
            "user, query or fragment",
        )


def is_loopback(host: str) -> bool:
    """Whether a host is this machine."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
