"""The prompt of an answer as its model got it: the messages, rendered from version and case.

Requests are not stored. Their messages follow from the version of the prompt and the case, which
the cell names by their hashes, so they are rendered again from the files, or from Git if the prompt
was changed since. A text that does not have the hash is never shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edison_ci.errors import EdisonError
from edison_ci.plan.versions import prompt_text, short
from edison_ci.records import CellStatus, Message, Side
from edison_ci.results.snapshot import snapshot_of
from edison_ci.safety.redaction import redactor
from edison_ci.templating.templates import MissingValueError, RenderError

if TYPE_CHECKING:
    from edison_ci.config.load import Project
    from edison_ci.config.prompt import Prompt
    from edison_ci.results.explanation import CellExplanation


class SentPrompt(NamedTuple):
    """The messages of a prompt, or why they are not shown."""

    messages: tuple[Message, ...] = ()
    why_not: str = ""
    """Empty if they are shown, and where the case is not known, which is said of the case."""


def sent_prompt(project: Project | None, explained: CellExplanation) -> SentPrompt:
    """Return the messages that were sent for a cell.

    They are rendered from the case as it is shown, and redacted like it.
    """
    cell, case = explained.cell, explained.case
    if why_not := _nothing_sent(explained):
        return SentPrompt(why_not=why_not)
    if project is None or case is None:
        return SentPrompt()
    prompt = _prompt_of(project, explained)
    if prompt is None:
        text = f"the text of {cell.prompt} {short(cell.version)}"
        return SentPrompt(why_not=f"{text} is neither in the files nor in the history of Git")
    redact = redactor(project.file.settings)
    try:
        messages = prompt.render(case.inputs)
    except (MissingValueError, RenderError):  # only a redacted value can be unlike what was sent
        return SentPrompt(why_not="it cannot be rendered from a case with redacted values")
    return SentPrompt(tuple(Message(sent.role, redact(sent.content)) for sent in messages))


def _nothing_sent(explained: CellExplanation) -> str:
    """Return why a cell has no prompt that may be shown; empty if it has one."""
    cell = explained.cell
    if explained.run.grades_imports:
        return "the answer was imported, so this project sent nothing"
    if cell.status is CellStatus.SKIPPED:
        return "nothing was sent"
    if cell.status is CellStatus.BLOCKED:
        if cell.answer_no is None:
            return "the input was blocked, so nothing was sent"
        return "the answer was blocked, so its prompt is not shown either"
    return ""


def _prompt_of(project: Project, explained: CellExplanation) -> Prompt | None:
    """Return the version of the prompt that a cell used; None if its text is unknown."""
    run, cell = explained.run, explained.cell
    for prompt in project.prompts.values():
        if prompt.version == cell.version:
            return prompt
    mark = "" if cell.side == Side.HEAD else f"{cell.side}: "
    commit = run.commit_id if cell.side == Side.HEAD else run.base_commit
    paths = (
        place.removeprefix(mark)
        for place, value in snapshot_of(run).items()
        if place.startswith(mark) and isinstance(value, list) and value[:1] == [cell.version]
    )
    path = next(paths, None)
    try:
        return None if path is None else prompt_text(project.root, path, cell.version, commit)
    except EdisonError:  # a repository that cannot be read has no text
        return None
