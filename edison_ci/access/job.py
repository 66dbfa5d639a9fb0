"""The terms of a job: those of its base for a proposal, and elsewhere the project's own."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from edison_ci.access import proposal_terms

if TYPE_CHECKING:
    from edison_ci.config.load import Project


def on_base_terms(project: Project, *, to_report: bool = False) -> Project:
    """Return a project on the terms of its base, which only a job of GitHub can have.

    For a report on runs that were made, the base need not be in the clone.
    """
    if "GITHUB_EVENT_NAME" not in os.environ:
        return project
    apply = proposal_terms.to_report_on if to_report else proposal_terms.apply_base_terms
    return apply(project)
