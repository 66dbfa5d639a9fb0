"""A job: its terms, those of its base for a proposal, and its keys, in variables or sealed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.access import proposal_terms, sealed_keys
from edison_ci.config.project_files import ProjectFiles
from edison_ci.documents.files import WorkingTree
from edison_ci.documents.secrets import variable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from edison_ci.config.load import Project
    from edison_ci.config.sealed import SecretsFile


def on_base_terms(project: Project, *, to_report: bool = False) -> Project:
    """Return a project on the terms of its base, which only a job of GitHub can have.

    For a report on runs that were made, the base need not be in the clone.
    """
    if "GITHUB_EVENT_NAME" not in os.environ:
        return project
    apply = proposal_terms.to_report_on if to_report else proposal_terms.apply_base_terms
    return apply(project)


@dataclass(frozen=True, slots=True, eq=False)
class KeyEnvironment(Mapping[str, str]):
    """The variables of this process, and the sealed keys for those that are not set."""

    secrets: SecretsFile
    """That of the base, in a job for a pull request."""
    root: Path
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)

    def __getitem__(self, name: str) -> str:
        """Return a variable, or the sealed key of this name; raises UsageError."""
        if value := variable(name, self.environ):
            return value
        if (key := self.secrets.of(name)) is None:
            return self.environ[name]
        assert self.secrets.public_key is not None, "a file with keys has a public key"
        private = sealed_keys.find_private_key(self.secrets.public_key, self.environ)
        return sealed_keys.open_box(
            key, private, sealed_keys.repository_name(self.root, self.environ)
        )

    def __iter__(self) -> Iterator[str]:
        yield from {
            **dict.fromkeys(self.environ),
            **dict.fromkeys(k.name for k in self.secrets.keys),
        }

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def is_set(self, name: str) -> bool:
        """Whether a variable is set, so that a sealed key of its name is not used."""
        return bool(variable(name, self.environ))

    def has(self, name: str) -> bool:
        """Whether a variable is set, or sealed; what is sealed is not opened."""
        return self.is_set(name) or self.secrets.of(name) is not None


def key_environment(project: Project) -> KeyEnvironment:
    """Return the variables and sealed keys of a project, on the terms of its base."""
    return KeyEnvironment(on_base_terms(project).secrets, project.root)


def keys_at(root: Path) -> KeyEnvironment:
    """Return the same for the project at `root`, whose other files may be invalid."""
    files = ProjectFiles(WorkingTree(root))
    proposed = proposal_terms.is_proposed(root)
    secrets = proposal_terms.base_secrets(root) if proposed else files.secrets()
    return KeyEnvironment(secrets, root)
