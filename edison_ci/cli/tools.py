"""With what does a command make and grade calls, and who may make them?"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from edison_ci.decide.decisions import write_decisions
from edison_ci.execute.grading import CellGrader
from edison_ci.execute.orders import Conclusion, Question, Tools
from edison_ci.operate.actors import Role
from edison_ci.operate.site import Site
from edison_ci.plugins import later
from edison_ci.providers.adapters import provider_for

if TYPE_CHECKING:
    import sqlite3

    from edison_ci.cli.options import State
    from edison_ci.config.load import Project


def require(project: Project, action: str) -> None:
    """Refuse whoever may not make calls; the refusal is audited."""
    Site(project.root, project.file).require(Role.EDITOR, action)


def tools_for(state: State, project: Project) -> Tools:
    """Return the real providers, with keys from the environment, and the experiment's graders."""
    provider = partial(
        provider_for,
        environ=os.environ,
        offline=state.offline,
        tree=project.tree,
        trust=project.trust,
    )
    return Tools(provider, CellGrader.of, decide=conclude)


def conclude(connection: sqlite3.Connection, question: Question) -> Conclusion:
    """Let the gates decide about a run."""
    decision = _decide(connection, question)
    write = write_decisions(question.run_id, decision.rows, now=question.now)
    return Conclusion(decision.verdict, decision.exit_code, write)


# Loaded late: a run without gates needs no statistics but its intervals.
_decide = later("edison_ci.cli.deciding:decided")
