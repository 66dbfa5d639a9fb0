"""Programs of the repository: their sandbox, and what they get.

A program runs in a folder with its own files, of the working tree or of a commit, and gets the
variables that `.edison/trust.yaml` names for it, and no others. In a job for a proposal the trust
file of the base decides, and the program gets anything only if its files, arguments and set-up are
those of the base, whose own files are run then. A changed program runs as it is committed, in the
sandbox, if it needs neither keys nor network; otherwise only in a job that a person approved by an
environment of GitHub. Where it may not run, its cells are skipped.
"""

from __future__ import annotations

import os
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.access import github_api
from edison_ci.access.proposal_terms import apply_base_terms
from edison_ci.checks import child
from edison_ci.config import program_files, trust_entries
from edison_ci.documents.files import WorkingTree
from edison_ci.documents.secrets import remember
from edison_ci.git.objects import CommitTree
from edison_ci.git.repository import Repository
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
        model = _as_committed(model, self.project.root)
        if named.needs_nothing:
            return self._confined(model, named)
        if named.environment and github_api.is_approved(named.environment, self.environ):
            return self._open(model, named)
        how = f"environment {named.environment}" if named.environment else "environment: NAME"
        return command.SkippedProgram(
            f"the program {model.name} is not that of the base, and gets keys or network only in a "
            f"job that a person approved ({how} in .edison/trust.yaml)"
        )

    def provider(self, model: Model) -> Provider:
        """Return the provider of a program."""
        program = self.program(model)
        return (
            program
            if isinstance(program, command.SkippedProgram)
            else command.CommandProvider(program)
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
            return self._confined(model, named)
        variables = {name: self.environ[name] for name in named.env if name in self.environ}
        remember(variables.values())  # so that they are masked in all output
        return self._made(model, named, variables, confined=False)

    def _confined(
        self, model: Model, named: trust_entries.TrustedProgram
    ) -> command.Program | command.SkippedProgram:
        if child.sandbox_fault():
            return command.SkippedProgram(f"{model.name} was not run: {child.NO_SANDBOX}")
        return self._made(model, named, {}, confined=child.has_sandbox())

    def _made(
        self,
        model: Model,
        named: trust_entries.TrustedProgram,
        variables: Mapping[str, str],
        *,
        confined: bool,
    ) -> command.Program:
        tree, limits = model.tree or WorkingTree(self.project.root), named.limits
        return command.Program(
            run=tuple(model.options["run"]),
            root=self.project.root,
            write_files=partial(program_files.write_program, model, tree),
            setup=tuple(model.options.get("setup") or ()),
            environment=variables,
            confined=confined,
            readable=tuple(map(Path, named.folders)),
            limits=child.Limits(
                memory_bytes=limits.memory_mb << 20,
                files_bytes=limits.files_mb << 20,
                file_bytes=limits.files_mb << 20,
                processes=limits.processes,
            ),
            timeout_s=model.limits.timeout_s,
        )


def _as_committed(model: Model, root: Path) -> Model:
    """Return the program of a proposal with the files of its commit, without those of the job."""
    repository = Repository.find(root)
    head = None if repository is None else repository.head()
    if repository is None or head is None:
        return model
    prefix = root.resolve().relative_to(repository.root.resolve()).as_posix()
    return replace(model, tree=CommitTree(repository, head, "" if prefix == "." else prefix))
