"""edison import traces: recorded calls of an application as cases of a dataset."""

from __future__ import annotations

import asyncio
import hashlib
import re
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import click

from edison_ci._dataclass import dataclass
from edison_ci.access import site as sites
from edison_ci.api import traces as api_traces
from edison_ci.cli import lookup
from edison_ci.cli.options import CliState, EdisonCommand, takes
from edison_ci.cli.terminal import GOOD, ODD, StyledText, Terminal
from edison_ci.config import cases, experiment
from edison_ci.documents import files as document_files
from edison_ci.documents import marks
from edison_ci.errors import ConfigError, Location, UsageError
from edison_ci.features.importing.outputs import file_to_import
from edison_ci.git import forge as models
from edison_ci.git import objects
from edison_ci.numeric import counted
from edison_ci.proposals import context, file_proposal
from edison_ci.records import canonical_json
from edison_ci.store import audit as store_audit

if TYPE_CHECKING:
    from edison_ci.access.site import Site
    from edison_ci.documents.files import Tree

_SHOWN = 5
_WIDE = 70
_LARGEST = 1_000_000_000
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,49}")


@dataclass(frozen=True, slots=True)
class TracesRequest:
    """The file, and what is made of its calls."""

    file: Path
    dataset: str
    name: str
    """Input that gets the last message of the user."""
    expected: bool
    keep_personal_data: bool
    write: bool
    pull_request: bool


@click.command(cls=EdisonCommand)
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@click.option(
    "--dataset", required=True, metavar="PATH", help="Dataset of the project, a .jsonl file."
)
@click.option(
    "--input",
    "name",
    default="message",
    show_default=True,
    metavar="NAME",
    help="Input that gets the last message of the user.",
)
@click.option("--expected", is_flag=True, help="Use the answer as the expected output.")
@click.option("--keep-personal-data", is_flag=True, help="Do not redact personal data.")
@click.option("--write", is_flag=True, help="Append the cases to the dataset.")
@click.option("--pull-request", is_flag=True, help="Propose the cases in a pull request.")
@click.pass_obj
@takes(TracesRequest)
def traces(state: CliState, request: TracesRequest) -> None:
    """Turn recorded calls of an application into cases of a dataset.

    FILE has OpenTelemetry spans of the GenAI conventions, as OTLP JSON: one document, or one for
    each line. The last message of the user becomes the input `message`, what precedes it `history`,
    and the instructions `system`. Cases that the dataset has already are left out, secrets are
    masked, and personal data is redacted. Without --write or --pull-request nothing is written.

    Examples:
      edison import traces spans.jsonl --dataset datasets/qa.jsonl
      edison import traces spans.jsonl --dataset datasets/qa.jsonl --write
      edison import traces s.jsonl --dataset datasets/qa.jsonl --pull-request
    """
    terminal, name = Terminal(state), request.name
    if request.write and request.pull_request:
        raise UsageError("--write and --pull-request exclude each other", hint="choose one")
    if not _VARIABLE.fullmatch(name) or name in ("system", "history", "expected", "output"):
        hint = "use letters, digits and _; not system, history, expected or output"
        raise UsageError(f"{name!r} is not a valid name of an input", hint=hint)
    site = lookup.open_site(state)
    path = _dataset_path(request.dataset)
    tree, source = file_to_import(state, request.file, (".jsonl", ".json"))
    options = api_traces.TraceOptions(name, request.expected, not request.keep_personal_data)
    try:
        traced = api_traces.read_traces(
            document_files.read(tree, source, max_bytes=api_traces.MAX_BYTES), source, options
        )
    except marks.Fault as fault:
        raise UsageError(fault.message, where=Location(source), hint=fault.hint) from None
    done: dict[str, Any] = {"written": False}
    if request.pull_request:
        done |= _propose(state, site, path, traced)
    else:
        before = _without_known(document_files.WorkingTree(site.root), path, traced)
        if request.write and traced.rows:
            _write(site, path, traced, before)
            done["written"] = True
    if terminal.json:
        terminal.document({"file": str(request.file), "dataset": path, **_counts(traced), **done})
    else:
        _show(terminal, path, traced, done)


def _dataset_path(dataset: str) -> str:
    try:
        path = document_files.inside(dataset)
    except marks.Fault as fault:
        raise UsageError(fault.message, hint=fault.hint) from None
    if not path.endswith(".jsonl"):
        raise UsageError(f"{dataset!r} is not a .jsonl file", hint="name a .jsonl dataset")
    return path


def _without_known(tree: Tree, path: str, traced: api_traces.TracedCases) -> bytes:
    """Leave out the cases of the dataset; return its content, empty if there is no such file."""
    if not tree.exists(path):
        return b""
    limits = experiment.DataLimits(max_rows=100_000_000, max_bytes=_LARGEST)
    feed = cases.CaseFeed(tree, (experiment.DatasetEntry(path=path, limits=limits),))
    api_traces.without_known(traced, feed)
    if feed.problems:
        raise ConfigError(feed.problems)
    return document_files.read(tree, path, max_bytes=_LARGEST)


def _write(site: Site, path: str, traced: api_traces.TracedCases, before: bytes) -> None:
    actor = site.require(sites.Role.EDITOR, "import traces", path)
    root = site.root.resolve()
    target = document_files.place_in(root, path).resolve()  # a link to another file stays one
    entry = site.entry(actor, "import traces", path, after=_audited(traced))
    audit = (
        (lambda: store_audit.write_audit(site.results, entry)) if site.results.exists() else None
    )
    name, data = str(target.relative_to(root)), api_traces.appended(before, traced)
    document_files.replace_file(root, name, data, just_before=audit)


def _propose(
    state: CliState, site: Site, path: str, traced: api_traces.TracedCases
) -> dict[str, Any]:
    """Put the new cases on a separate branch, and open a pull request where that is possible.

    The working tree stays as it is: the cases are added to the dataset of the default branch.
    """
    actor = site.require(sites.Role.EDITOR, "import traces", path)
    review = context.ReviewContext.of(lookup.open_project(state), offline=state.offline)
    repository = context.needs_repository(review)
    base, commit = file_proposal.proposal_base(review)
    place = review.in_repository(path)
    before = _without_known(
        objects.CommitTree(repository, commit, place.removesuffix(path)), path, traced
    )
    if not traced.rows:
        return {"branch": None}
    key = hashlib.sha256(canonical_json([path, sorted(traced.rows)]).encode()).hexdigest()[:16]
    stem = re.sub(r"[^A-Za-z0-9_-]+", "-", PurePosixPath(path).stem)
    change = models.Change(
        branch=f"edison/traces/{stem}-{key[:8]}",
        base=base,
        base_commit=commit,
        files={place: api_traces.appended(before, traced)},
        key=key,
        title=f"Add {counted(len(traced.rows), 'case')} from traces to {path}",
        body=_body(path, traced),
    )
    result = asyncio.run(file_proposal.propose_files(review, change))
    if site.results.exists():
        after = {**_audited(traced), "branch": result.branch}
        site.record(actor, "import traces", path, after=after)
    pull = result.pull_request
    return {
        "branch": result.branch,
        "commit": result.commit,
        "action": result.action,
        "pull_request": None if pull is None else pull.url,
        "compare_url": review.hosting.compare_url(base, result.branch),
        "pushed_to": review.hosting.remote,
    }


def _body(path: str, traced: api_traces.TracedCases) -> str:
    masked = (
        f"{_masked(traced)}." if _masked(traced) else "No secrets or personal data were traced."
    )
    cases = counted(len(traced.rows), "case")
    return (
        f"{cases} for `{path}`, from recorded calls of the application. "
        f"{masked}\n\nReview every text before merging: redaction finds patterns, not names.\n"
    )


def _audited(traced: api_traces.TracedCases) -> dict[str, Any]:
    counts = _counts(traced)
    del counts["cases"]
    return counts


def _counts(traced: api_traces.TracedCases) -> dict[str, Any]:
    return {
        "calls": traced.calls,
        "new": len(traced.rows),
        "duplicates": traced.duplicates,
        "without_text": traced.empty,
        "too_large": traced.too_large,
        "secrets_masked": traced.secrets,
        "personal_data_redacted": traced.personal,
        "cases": [*traced.rows.values()][:_SHOWN],
    }


def _masked(traced: api_traces.TracedCases) -> str:
    """Return what was masked, in words."""
    kinds = [f"{number} {kind}" for kind, number in traced.personal.items()]
    words = [f"personal data redacted: {', '.join(kinds)}"] if kinds else []
    words += [f"secrets masked in {counted(traced.secrets, 'text')}"] if traced.secrets else []
    return "; ".join(words)


def _show(
    terminal: Terminal, path: str, traced: api_traces.TracedCases, done: dict[str, Any]
) -> None:
    if done["written"]:
        word = StyledText("added", GOOD)
    else:
        word = StyledText("proposed" if done.get("branch") else "would add", ODD)
    terminal.result(word, f"  {counted(len(traced.rows), 'case')} to {path}")
    for row in [*traced.rows.values()][:_SHOWN]:
        text = " ".join(str(next(iter(row["input"].values()))).split())
        start = text if len(text) <= _WIDE else f"{text[: _WIDE - 3]}..."
        terminal.result(f"  {row['id']}  {start}")
    if len(traced.rows) > _SHOWN:
        terminal.result(f"  and {len(traced.rows) - _SHOWN:,} more")
    left = [
        f"{number:,} {word}"
        for number, word in (
            (traced.duplicates, "known already"),
            (traced.empty, "without a text"),
            (traced.too_large, "too large"),
        )
        if number
    ]
    terminal.result(
        f"{counted(traced.calls, 'call')} read{''.join(f', {reason}' for reason in left)}"
    )
    if masked := _masked(traced):
        terminal.result(masked)
    _show_next(terminal, traced, done)


def _show_next(terminal: Terminal, traced: api_traces.TracedCases, done: dict[str, Any]) -> None:
    if not traced.rows:
        return
    if branch := done.get("branch"):
        terminal.result(f"branch {branch} at {done['commit'][:8]}")
        if done["pull_request"]:
            terminal.result(f"pull request {done['pull_request']}")
        elif done["compare_url"]:
            terminal.note(f"Open a pull request: {done['compare_url']}")
        elif done["pushed_to"]:
            terminal.note(f"It is pushed to {done['pushed_to']}: open a pull request there")
        else:
            terminal.note(f"Push it, then open a pull request: git push REMOTE {branch}")
    elif done["written"]:
        terminal.note("Review the texts before you commit them: redaction finds no names")
    else:
        terminal.note("nothing was written: add --write, or --pull-request")
