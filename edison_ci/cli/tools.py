"""With what does a command make and grade calls, and who may make them?"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from edison_ci.cli.own_results import claim
from edison_ci.cli.trusting import on_terms_of_base
from edison_ci.execute.grading import CellGrader
from edison_ci.execute.money import job_cap
from edison_ci.execute.orders import Tools
from edison_ci.harmless import in_actions
from edison_ci.operate.actors import Role
from edison_ci.operate.site import Site
from edison_ci.providers.adapters import provider_for

if TYPE_CHECKING:
    from edison_ci.cli.options import State
    from edison_ci.config.load import Experiment, Project
    from edison_ci.execute.lanes import Lanes


def require(project: Project, action: str) -> None:
    """Refuse whoever may not make calls; the refusal is audited."""
    Site(project.root, project.file).require(Role.EDITOR, action)


def tools_for(state: State, project: Project) -> Tools:
    """Return the real providers, with keys from the environment, and the experiment's graders."""
    terms = on_terms_of_base(project)
    claim(project)
    provider = partial(
        provider_for,
        environ=os.environ,
        offline=state.offline,
        tree=project.tree,
        trust=terms.trust,
    )
    job = job_cap(terms, os.environ)
    return Tools(provider, _grading, advice=advice("every answer is kept"), job=job)


def advice(then: str) -> str:
    """Return what can be done while a model does not answer; nobody sits before an action."""
    return "" if in_actions() else f"Ctrl-C stops it; {then}"


def _grading(project: Project, experiment: Experiment, lanes: Lanes) -> CellGrader:
    return CellGrader.of(on_terms_of_base(project), experiment, lanes)
