"""Protection of a branch on GitHub: what its rulesets and its classic protection require."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edison_ci._dataclass import dataclass
from edison_ci.errors import ForgeError, ForgeFault

if TYPE_CHECKING:
    from edison_ci.access.github_api import Api


@dataclass(frozen=True, slots=True)
class BranchProtection:
    """The requirements for a change of a branch; each is the strictest of all rules."""

    pull_request: bool = False
    """Whether changes need a pull request."""
    approvals: int = 0
    """Approving reviews that a pull request needs."""
    code_owners: bool = False
    """Whether a code owner of each changed file must approve."""
    dismiss_stale: bool = False
    """Whether new commits dismiss approvals."""
    last_push: bool = False
    """Whether another person than the one who pushed last must approve."""
    checks: frozenset[str] = frozenset()
    """Names of the checks that must pass."""
    no_force_push: bool = False
    no_deletion: bool = False
    classic_unknown: bool = False
    """Whether the token may not read classic protection, which may require more."""

    def __or__(self, other: BranchProtection) -> BranchProtection:
        """Return what both together require."""
        return BranchProtection(
            pull_request=self.pull_request or other.pull_request,
            approvals=max(self.approvals, other.approvals),
            code_owners=self.code_owners or other.code_owners,
            dismiss_stale=self.dismiss_stale or other.dismiss_stale,
            last_push=self.last_push or other.last_push,
            checks=self.checks | other.checks,
            no_force_push=self.no_force_push or other.no_force_push,
            no_deletion=self.no_deletion or other.no_deletion,
            classic_unknown=self.classic_unknown or other.classic_unknown,
        )


async def read_protection(api: Api, branch: str) -> BranchProtection:
    """Return the protection of a branch; rulesets are readable with any token."""
    protection = BranchProtection()
    for rule in await api.pages("read the rules of the branch", "rules", "branches", branch):
        protection |= _rule(rule)
    try:
        classic = await api.get("read branch protection", "branches", branch, "protection")
    except ForgeError as error:
        if error.fault is ForgeFault.NOT_FOUND:
            return protection
        if error.fault is ForgeFault.FORBIDDEN:
            return protection | BranchProtection(classic_unknown=True)
        raise
    return protection | _classic(classic)


def _rule(value: Any) -> BranchProtection:
    """Return what one rule of a ruleset requires; an unknown rule requires none."""
    kind, options = _part(value, "type"), _part(value, "parameters")
    if kind == "pull_request":
        return BranchProtection(
            pull_request=True,
            approvals=_count(options, "required_approving_review_count"),
            code_owners=_part(options, "require_code_owner_review") is True,
            dismiss_stale=_part(options, "dismiss_stale_reviews_on_push") is True,
            last_push=_part(options, "require_last_push_approval") is True,
        )
    if kind == "required_status_checks":
        return BranchProtection(checks=_names(_part(options, "required_status_checks")))
    if kind == "non_fast_forward":
        return BranchProtection(no_force_push=True)
    return BranchProtection(no_deletion=kind == "deletion")


def _classic(value: Any) -> BranchProtection:
    reviews, checks = (
        _part(value, key) for key in ("required_pull_request_reviews", "required_status_checks")
    )
    contexts = _part(checks, "contexts")
    named = frozenset(context for context in contexts or () if isinstance(context, str))
    return BranchProtection(
        pull_request=isinstance(reviews, dict),
        approvals=_count(reviews, "required_approving_review_count"),
        code_owners=_part(reviews, "require_code_owner_reviews") is True,
        dismiss_stale=_part(reviews, "dismiss_stale_reviews") is True,
        last_push=_part(reviews, "require_last_push_approval") is True,
        checks=_names(_part(checks, "checks")) | named,
        no_force_push=_part(_part(value, "allow_force_pushes"), "enabled") is not True,
        no_deletion=_part(_part(value, "allow_deletions"), "enabled") is not True,
    )


def _part(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, dict) else None


def _count(value: Any, key: str) -> int:
    count = _part(value, key)
    return count if isinstance(count, int) and not isinstance(count, bool) else 0


def _names(value: Any) -> frozenset[str]:
    listed = value if isinstance(value, list) else []
    return frozenset(name for check in listed if isinstance(name := _part(check, "context"), str))
