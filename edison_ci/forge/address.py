"""Where a repository is hosted, with which token, and who opens pull requests there.

In GitHub Actions the runner says so, on GitHub Enterprise too. Elsewhere the remote `origin` does,
but only for github.com: a token is never sent to a host that nothing but a clone names.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import field
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from edison_ci._dataclass import dataclass
from edison_ci.errors import UsageError
from edison_ci.git.command import run_git
from edison_ci.git.fetch import remote_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edison_ci.git.repository import Repository


# In GitHub Actions commits are made through GitHub, which signs them; elsewhere by Git, with
# whatever credentials Git has. A token only opens, reviews and closes pull requests. Without one,
# or anywhere but on GitHub, there are branches and patches.
@dataclass(frozen=True, slots=True)
class Hosting:
    """Where a repository is hosted, as far as this machine can reach it."""

    remote: str | None = None
    """The remote that branches are pushed to; None leaves them here."""
    url: str | None = None
    """Of the remote."""
    address: Address | None = None
    """GitHub, if there is a token for it."""
    by_api: bool = False
    """Whether commits are made through GitHub rather than pushed."""

    def compare_url(self, base: str, branch: str) -> str | None:
        """Return the page on which a person can open a pull request, if it is known."""
        if self.address is not None:
            return self.address.compare_url(base, branch)
        return compare_link(self.url, base, branch)


def hosting_of(
    repository: Repository, environment: Mapping[str, str], *, offline: bool = False
) -> Hosting:
    """Return where a repository is hosted; `offline` keeps everything on this machine."""
    if offline:
        return Hosting()
    remote = remote_of(repository.root)
    url = None
    if remote is not None:
        said = run_git("config", "--get", f"remote.{remote}.url", cwd=repository.root)
        url = said.line if said.code == 0 else None
    token = any(environment.get(name) for name in TOKEN_VARIABLES)
    named = environment.get("GITHUB_REPOSITORY") or on_github(url)
    address = address_from(environment, remote=url) if token and named else None
    in_actions = environment.get("GITHUB_ACTIONS") == "true"
    return Hosting(remote, url, address, by_api=in_actions and address is not None)


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
class Address:
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
                f"{self.repository!r} is not the name of a repository",
                hint="write it as owner/name, in GITHUB_REPOSITORY",
            )
        if not _TOKEN.fullmatch(self.token):
            raise UsageError(
                "the token for GitHub is empty, or contains a space or a line break",
                hint="check how the variable is set; a token is one word",
            )
        for url in (self.api_url, self.server_url):
            _refuse_unsafe(url)

    @property
    def owner(self) -> str:
        """Who the repository belongs to."""
        return self.repository.partition("/")[0]

    @property
    def repository_url(self) -> str:
        """Where requests about the repository go."""
        return f"{self.api_url.rstrip('/')}/repos/{self.repository}"

    def run_url(self, run_id: int) -> str:
        """Return the page of a workflow run."""
        return f"{self.server_url.rstrip('/')}/{self.repository}/actions/runs/{run_id}"

    def compare_url(self, base: str, branch: str) -> str:
        """Return the page on which a person can open a pull request."""
        return _compare(f"{self.server_url.rstrip('/')}/{self.repository}", base, branch)


def address_from(environment: Mapping[str, str], *, remote: str | None = None) -> Address:
    """Return the address that the environment names, else the one of the remote `origin`."""
    token = next((environment[name] for name in TOKEN_VARIABLES if environment.get(name)), "")
    if not token:
        raise UsageError(
            "there is no token for GitHub",
            hint="in a workflow: env: {GITHUB_TOKEN: '${{ github.token }}'}; "
            "elsewhere: export GITHUB_TOKEN",
        )
    named = environment.get("GITHUB_REPOSITORY") or on_github(remote)
    if not named:
        raise UsageError(
            "it is not known which repository on GitHub this is",
            hint="set GITHUB_REPOSITORY=owner/name, and GITHUB_API_URL for GitHub Enterprise",
        )
    return Address(
        named,
        token.strip(),
        environment.get("GITHUB_API_URL") or PUBLIC_API,
        environment.get("GITHUB_SERVER_URL") or PUBLIC_SERVER,
    )


def on_github(remote: str | None) -> str | None:
    """Return `owner/name` of a remote on github.com."""
    found = _REMOTE.fullmatch(remote or "")
    return found[1] if found else None


def compare_link(remote: str | None, base: str, branch: str) -> str | None:
    """Return the page on which a person can open a pull request; no token is needed for it."""
    named = on_github(remote)
    return _compare(f"{PUBLIC_SERVER}/{named}", base, branch) if named else None


def _compare(place: str, base: str, branch: str) -> str:
    return f"{place}/compare/{quote(base, safe='/')}...{quote(branch, safe='/')}?expand=1"


def _refuse_unsafe(url: str) -> None:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        host, parts = "", urlsplit("")
    encrypted = parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(host))
    plain = not (parts.username or parts.password or parts.query or parts.fragment)
    if not (host and encrypted and plain):
        raise UsageError(
            f"{url!r} is not an address to which a token may be sent",
            hint="GITHUB_API_URL and GITHUB_SERVER_URL start with https:// and end in a host "
            "or a path",
        )


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
