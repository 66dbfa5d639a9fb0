"""The page of a case's history: its texts, with their commits, and the results of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edison_ci.documents.secrets import redacted
from edison_ci.errors import EdisonError, UsageError
from edison_ci.results.case_history import (
    MOST_CELLS,
    CaseText,
    CaseTexts,
    TextResults,
    case_texts,
    results_by_text,
)
from edison_ci.results.run_result import labels_of
from edison_ci.web.cache import REFRESH_S
from edison_ci.web.formats import as_text
from edison_ci.web.page_context import Crumb, Page, PageContext, requested_run
from edison_ci.web.pages.answers import word_diff
from edison_ci.web.pages.experiment import requested_experiment
from edison_ci.web.workspace import git_state, project_of

if TYPE_CHECKING:
    from markupsafe import Markup

    from edison_ci.config.load import Project
    from edison_ci.records import Json


class TextField(NamedTuple):
    """An input, or the expected answer, and what changed in it."""

    name: str
    text: str
    changes: Markup | None
    """Word diff to the text before; None if it did not change, or is too long."""


class VersionView(NamedTuple):
    """One text of a case, where it comes from, and its results."""

    text: CaseText | None
    """None for a text that has results and is not in the history."""
    fields: tuple[TextField, ...]
    results: TextResults | None
    marks: tuple[str, ...]


def history(context: PageContext) -> Page:
    """Return the texts of a case, newest first, with the results of each."""
    name, case_id = requested_experiment(context), context.args.text("case")
    if not case_id:
        raise UsageError("which case?", hint="open it from the page of an answer")
    results = results_by_text(context.connection, name, case_id)
    texts, waiting = _texts(context, name, case_id)
    if not results and not waiting and texts is None:
        raise UsageError(
            f"{name} has no case {case_id!r}", hint="open it from the page of an answer"
        )
    return Page(
        "case_history",
        f"History of {case_id}",
        {
            "experiment": name,
            "case": case_id,
            "texts": texts,
            "versions": _versions(context, texts, results),
            "waiting": waiting,
            "counted": sum(result.answers for result in results.values()),
            "most": MOST_CELLS,
        },
        crumbs=(
            Crumb("Datasets", context.links.to("datasets")),
            Crumb(name, context.links.to("dataset", name)),
        ),
        area="datasets",
        refresh_s=REFRESH_S if waiting else None,
    )


def _texts(context: PageContext, name: str, case_id: str) -> tuple[CaseTexts | None, bool]:
    """Return the texts of a case, and whether they are still searched."""
    project = project_of(context)
    if project is None or name not in project.experiments:
        return None, False
    key = ("case history", str(context.root), name, case_id, *_stamps(context, project, name))

    def work(own: PageContext) -> tuple[CaseTexts | None]:
        del own  # the files are read, not the results
        return (_searched(project, name, case_id),)

    if context.file is None:
        return _searched(project, name, case_id), False
    searched = context.memory.in_background(context, key, work, patience_s=0.5)
    return (None, True) if searched is None else (searched[0], False)


def _searched(project: Project, name: str, case_id: str) -> CaseTexts | None:
    try:
        return case_texts(project, project.experiments[name], case_id)
    except (EdisonError, OSError):
        return None


def _stamps(context: PageContext, project: Project, name: str) -> tuple[object, ...]:
    """Return what changes with the dataset and its history; the minute if that is unknown."""
    files = []
    for entry in project.experiments[name].file.data:
        try:
            files.append((project.root / entry.path).stat().st_mtime_ns)
        except OSError:
            files.append(0)
    state = git_state(project.root)
    return (*files, context.now.strftime("%Y%m%d%H%M") if state is None else state)


def _versions(
    context: PageContext, texts: CaseTexts | None, results: dict[str, TextResults]
) -> list[VersionView]:
    stored_texts = texts.texts if texts is not None else ()
    versions = []
    for index, text in enumerate(stored_texts):
        older = stored_texts[index + 1] if index + 1 < len(stored_texts) else None
        # The same text may have come back: its results are shown with the newest.
        first = all(text.hash != earlier.hash for earlier in stored_texts[:index])
        result = results.get(text.hash) if first else None
        versions.append(VersionView(text, _fields(text, older), result, _marks(context, result)))
    hashes = {text.hash for text in stored_texts}
    versions += [VersionView(None, (), result, _marks(context, result))
              for hashed, result in results.items() if hashed not in hashes]  # fmt: skip
    return versions


def _marks(context: PageContext, result: TextResults | None) -> tuple[str, ...]:
    if result is None:
        return ()
    return tuple(labels_of(requested_run(context, result.last_run)))


def _fields(text: CaseText, older: CaseText | None) -> tuple[TextField, ...]:
    before = {} if older is None else _values(older)
    fields = []
    for name, value in _values(text).items():
        shown = redacted(as_text(value))
        changed = older is not None and before.get(name) != value
        old = redacted(as_text(before[name])) if before.get(name) is not None else ""
        fields.append(TextField(name, shown, word_diff(old, shown) if changed else None))
    return tuple(fields)


def _values(text: CaseText) -> dict[str, Json]:
    case = text.case
    expected = {} if case.expected is None else {"expected": case.expected}
    return {**case.inputs, **expected}
