"""Which experiments and cases is a dataset command about?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edison_ci.config.load import Experiment, Project
    from edison_ci.records import Case


def meant(project: Project, name: str | None) -> list[Experiment]:
    """Return the experiment that was named, or all of them."""
    return [project.experiment(name)] if name else list(project.experiments.values())


def cases_of(project: Project, experiment: Experiment) -> Iterator[Case]:
    """Yield the cases of an experiment; a row that cannot be read ends it with every problem."""
    if not experiment.file.data:
        return
    feed = project.cases(experiment)
    yield from feed
    if feed.problems:
        raise ConfigError(feed.problems)
