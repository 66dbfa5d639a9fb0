"""Where a program of the repository runs, and what it gets.

Outside of proposals a program runs in the working tree, and the program of a base in a folder with
the files of its commit; each gets the variables that `.edison/trust.yaml` names for it, and no
others. In a job for a proposal the trust file of the base decides, and the program gets anything
only if its files, arguments and set-up are those of the base, whose own files are run then. A
changed program runs without keys and network, if it needs none; otherwise only in a job that a
person approved by an environment of GitHub. Where it may not run, its cells are skipped.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.access import approval
from edison_ci.access.proposal_terms import apply_base_terms
from edison_ci.checks import child
from edison_ci.config import trust_entries
from edison_ci.documents.secrets import remember
from edison_ci.git import commit_tree
from edison_ci.providers import command
from edison_ci.records import BaselineDoubt

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from edison_ci.config.load import Project
    from edison_ci.config.models import Model
    from edison_ci.contracts import Provider


@dataclass(frozen=True, slots=True)
class ProgramRules:
    """Decides how the programs of a project run."""

    project: Project
    """On the terms of its base, in a job for a proposal."""
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    offline: bool = False

    @classmethod
    def of(cls, project: Project, *, offline: bool = False) -> ProgramRules:
        """Return the rules for a project."""
        return cls(apply_base_terms(project), offline=offline)

    def program(self, model: Model) -> command.Program | command.SkippedProgram:
        """Return how the program of a model runs, or why it does not."""
        named = self.project.trust.program(model.name)
        if not self.project.proposed:
            return self._open(model, named or trust_entries.TrustedProgram(model=model.name))
        if named is None:
            return command.SkippedProgram(
                f"{model.name} is not listed under programs in .edison/trust.yaml of the base"
            )
        base = self.project.base_models.get(model.name)
        if base is not None and base.identity() == model.identity():
            return self._open(base, named)
        if named.needs_nothing:
            return self._confined(model)
        if named.environment and approval.is_approved(named.environment, self.environ):
            return self._open(model, named)
        how = f"environment {named.environment}" if named.environment else "environment: NAME"
        return command.SkippedProgram(
            f"the program {model.name} is not that of the base, and gets keys or network only in a "
            f"job that a person approved ({how} in .edison/trust.yaml)"
        )

    def provider(self, model: Model) -> Provider:
        """Return the provider of a program."""
        found = self.program(model)
        return (
            found if isinstance(found, command.SkippedProgram) else command.CommandProvider(found)
        )

    def doubts(self, models: Iterable[Model]) -> tuple[BaselineDoubt, ...]:
        """Return a doubt for each program that does not run."""
        programs = [self.program(model) for model in models if model.provider == "command"]
        skipped = dict.fromkeys(p.reason for p in programs if isinstance(p, command.SkippedProgram))
        return tuple(BaselineDoubt("program", f"Not run: {reason}.") for reason in skipped)

    def _open(
        self, model: Model, named: trust_entries.TrustedProgram
    ) -> command.Program | command.SkippedProgram:
        """Return a program with its variables; without network if it is said to need none."""
        if self.offline or (self.project.proposed and named.needs_nothing):
            return self._confined(model)
        variables = {name: self.environ[name] for name in named.env if name in self.environ}
        remember(variables.values())  # so that they are masked in all output
        return self._made(model, variables, confined=False)

    def _confined(self, model: Model) -> command.Program | command.SkippedProgram:
        if child.sandbox_fault():
            return command.SkippedProgram(f"{model.name} was not run: {child.NO_SANDBOX}")
        return self._made(model, {}, confined=child.has_sandbox())

    def _made(
        self, model: Model, variables: Mapping[str, str], *, confined: bool
    ) -> command.Program:
        return command.Program(
            tuple(model.options["run"]),
            _written(model.tree)
            if isinstance(model.tree, commit_tree.CommitTree)
            else self.project.root,
            tuple(model.options.get("setup") or ()),
            variables,
            confined,
            model.limits.timeout_s,
        )


@cache
def _written(tree: commit_tree.CommitTree) -> Path:
    """Return a folder with the files of a commit, until the process ends."""
    folder = Path(tempfile.mkdtemp(prefix="edison-base-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    tree.write_to(folder)
    return folder
