"""Checks of a worker before it takes work: versions, clocks, keys, the trust of its checkout.

A run sends the settings of its models, without keys. A worker calls a model only if it is one of
its own checkout, or if the trust.yaml of its own checkout lets the key go to that host: a
coordinator cannot direct a key, or a machine, to another place than the owner of the worker has
written down. Code of checks is run only if the worker was started so, and only that of its own
checkout: a run sends names and hashes of programs, and the texts that they read.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, NamedTuple, cast

from edison_ci._dataclass import dataclass
from edison_ci.checks.evaluation import EvaluationError
from edison_ci.config.model_entry import plugin_of
from edison_ci.config.program_files import check_digest
from edison_ci.config.trust import origin
from edison_ci.contracts import CheckOutcome
from edison_ci.documents.files import WorkingTree
from edison_ci.errors import TrustError, UsageError
from edison_ci.execute.check_grading import code_folder, refuse_without_sandbox
from edison_ci.execute.run_options import allow_code
from edison_ci.extras import find_program
from edison_ci.features.cluster.wire import travels
from edison_ci.numeric import counted

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from edison_ci.checks.code import CodeCheck
    from edison_ci.config.load import Project
    from edison_ci.config.models import Model
    from edison_ci.contracts import Provider
    from edison_ci.features.cluster.wire import Hello

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
MOST_CLOCK_S = 60.0
"""Clocks that differ by more are refused: vendors refuse signed calls of such a machine, its
certificates are judged by the wrong date, and its logs cannot be compared with those of others."""
_OWN_ONLY = frozenset({"http", "local"})
"""Providers that send arbitrary requests, or read files: called as the own checkout has them."""


class CallableModel(NamedTuple):
    """A model of the checkout, and whether it can be called here."""

    name: str
    variables: tuple[str, ...]
    """Names of the variables that it needs; never their values."""
    why_not: str
    """Empty if it can be called."""


@dataclass(frozen=True, slots=True)
class Preparation:
    """A worker in a checkout."""

    project: Project
    """On the terms of its base, in a job for a proposal."""
    open_model: Callable[[Model], Provider]
    """Opens a model with the keys of this process; raises UsageError if it may not."""
    is_set: Callable[[str], bool]
    """Whether a variable is set, or sealed."""

    def models(self) -> list[CallableModel]:
        """Return the models of the checkout; raises UsageError if none can be called here."""
        models = [self._callable(model) for model in self.project.models.values()]
        if not any(not model.why_not for model in models):
            reasons = "; ".join(f"{model.name} {model.why_not}" for model in models)
            raise UsageError(
                f"no model of this project can be called here: {reasons or 'it has none'}",
                hint="set the variables of their keys, or seal them: edison secrets seal NAME",
            )
        return models

    def _callable(self, model: Model) -> CallableModel:
        lacking = [name for name in model.variables if not self.is_set(name)]
        why_not = f"needs {' and '.join(lacking)}, not set here" if lacking else ""
        if not travels(model):
            why_not = "needs files of the run, whose coordinator calls it"
        return CallableModel(model.name, tuple(model.variables), why_not)

    def provider_for(self, model: Model) -> Provider:
        """Return what calls a model that a run has sent; raises UsageError if it is refused."""
        own = self.project.models.get(model.name)
        if own is not None and own.identity() == model.identity():
            return self.open_model(own)  # with the variables that are written here
        self._refuse_foreign(model)
        return self.open_model(model)

    def _refuse_foreign(self, model: Model) -> None:
        """Raise TrustError for a model of no own file that calls what is not trusted here."""
        if model.simulated:
            return
        own_only = model.provider in _OWN_ONLY or plugin_of(model.provider) is not None
        if own_only or model.base_url_env is not None:
            raise TrustError(
                f"model {model.name!r} is not as models.yaml here has it",
                hint="update the checkout of the worker, and start it again",
            )
        address = model.service or ""
        if not model.keys and not self.project.trust.names(address):
            raise TrustError(
                f"model {model.name!r} is not in models.yaml here, and .edison/trust.yaml here "
                f"does not name {_shown(address)}",
                hint="add the host under hosts in the trust.yaml of the worker",
            )


def _shown(address: str) -> str:
    try:
        return origin(address)
    except ValueError:
        return "its host"


class CodeChecks:
    """The code checks of a checkout, as far as this worker runs them."""

    def __init__(self, project: Project, root: Path | None, *, share: int = 1) -> None:
        """Take the folder of the code that may run here, None for none.

        `share` is the number of workers that this machine has.
        """
        self._root = root
        self.programs = {
            check.program: cast("CodeCheck", check)
            for experiment in project.experiments.values()
            for check in experiment.all_checks()
            if check.program
        }
        """By what they are called with."""
        self.places = max((os.cpu_count() or 1) // share, 1)
        """Checks at once: more would reach their limit of time because of each other."""

    @classmethod
    def allowed_by(cls, project: Project, *, share: int = 1) -> CodeChecks:
        """Return the code checks that may run here: those of the base, in a proposal."""
        return cls(project, code_folder(allow_code(project)), share=share)

    @property
    def allowed(self) -> bool:
        """Whether code may run here."""
        return self._root is not None

    def require_sandbox(self) -> None:
        """Raise UsageError if code may run here, and there is no sandbox for it."""
        if self.allowed and self.programs:
            refuse_without_sandbox()

    def why_not(self, program: str, digest: str) -> str:
        """Return why a program of a run is not run here; empty if it is the same here."""
        if self._root is None:
            return "code is not allowed at this worker"
        check = self.programs.get(program)
        if check is None:
            return "no check of its checkout runs that"
        if check_digest(check, WorkingTree(self._root)) != digest:
            return "its files are not those of the run"
        word = check.executable
        if find_program(str(self._root / word) if "/" in word else word):
            return ""
        return f"{word} is not installed at this worker"

    def run(self, program: str, digest: str, request: str) -> CheckOutcome | str:
        """Return what the code of a check finds, in the sandbox and within the limits of checks.

        Or why it is not run: its files may have changed since it was offered.
        """
        if (why := self.why_not(program, digest)) or self._root is None:
            return why
        try:
            grade = self.programs[program].run(self._root, request)
        except EvaluationError as error:
            return CheckOutcome(None, str(error), None)
        return CheckOutcome(grade.score, grade.reason, grade.passed)


def refuse_hello(hello: Hello, version: str) -> str:
    """Return why a worker of this version does not serve a coordinator; empty if it does."""
    if hello.version != version:
        return f"it has edison {version}, the coordinator {hello.version}"
    if hello.python != PYTHON:
        return f"it has Python {PYTHON}, the coordinator {hello.python}"
    return refuse_clock(hello.now - time.time(), "coordinator")


def refuse_clock(ahead_s: float, whose: str) -> str:
    """Return why a clock that differs so much is refused; empty if it is not."""
    if abs(ahead_s) <= MOST_CLOCK_S:
        return ""
    return f"its clock is {tell_offset(ahead_s, whose)}; at most {MOST_CLOCK_S:g} s are allowed"


def tell_offset(ahead_s: float, whose: str) -> str:
    """Return how far the clock of this machine is from another one, that is ahead by so much."""
    away = counted(round(abs(ahead_s)), "second")
    return f"{away} {'behind' if ahead_s > 0 else 'ahead of'} that of the {whose}"
