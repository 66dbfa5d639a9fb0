"""Attribution of fixed and broken cases to lines of a suggestion, started from its page."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from edison_ci.api.background import Job, start_job
from edison_ci.api.sessions import run_context
from edison_ci.config import requirements
from edison_ci.documents.decoding import decode
from edison_ci.errors import UsageError
from edison_ci.execute.hunks import HunkSearch, flips_of
from edison_ci.proposals.prompt_file import base_data, text_to_edit
from edison_ci.results.run_result import RunResult
from edison_ci.store.database import open_reader
from edison_ci.store.runs import find_run

if TYPE_CHECKING:
    from edison_ci.execute.hunks import DiffBlame
    from edison_ci.proposals.context import ReviewContext
    from edison_ci.store.suggestions import Suggestion


class BlameJob(Job):
    """The answers that are asked for without each hunk, and what they say."""

    def __init__(self, owner: str, about: str) -> None:
        super().__init__(owner, about)
        self.progress = (0, 0)
        """Answers that are known, and all."""
        self.found: DiffBlame | None = None


def start_blame(
    review: ReviewContext,
    suggestion: Suggestion,
    owner: str,
    budget_microusd: int,
    *,
    offline: bool,
) -> BlameJob:
    """Ask the cases that flipped in the trial of a suggestion without each of its hunks."""
    project = review.project
    experiment = project.experiment(suggestion.experiment)
    prompt = next(
        (candidate for candidate in experiment.prompts if candidate.id == suggestion.prompt), None
    )
    if prompt is None or not suggestion.runs:
        raise UsageError(
            f"suggestion {suggestion.id} was not tried on a prompt of {suggestion.experiment}",
            hint="try it first: edison refine",
        )
    before, after = decode(base_data(review, suggestion)), text_to_edit(review, suggestion)
    with closing(open_reader(review.site.results)) as reader:
        result = RunResult(reader, find_run(reader, suggestion.runs[-1]))
        flips = flips_of(result).get(suggestion.prompt, [])
    requirements.refuse(requirements.missing(project, experiment, calls=requirements.RUN))
    job = BlameJob(owner, f"suggestion {suggestion.id}")

    def progress(done: int, of: int) -> None:
        job.progress = (done, of)

    context = run_context(project, offline=offline)
    search = HunkSearch(project, experiment, prompt, context, budget_microusd, progress)

    def work() -> None:
        job.found = search.blame(before, after, flips)

    start_job(job, work)
    return job
