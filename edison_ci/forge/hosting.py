"""Where do branches of this repository go, and who opens pull requests for them?

In GitHub Actions commits are made through GitHub, which signs them; elsewhere by Git, with whatever
credentials Git has. A token only opens, reviews and closes pull requests. Without one, or anywhere
but on GitHub, there are branches and patches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.fetching import remote_of
from edison_ci.forge.address import TOKEN_VARIABLES, Address, address_from, compare_link, on_github
from edison_ci.frozen import dataclass
from edison_ci.git import run_git

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edison_ci.repository import Repository


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
