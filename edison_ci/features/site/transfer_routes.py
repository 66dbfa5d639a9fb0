"""The site's side of `edison push` and `edison pull`: uploads of bundles, and downloads of runs.

Both sides are this package, in the same version, so this is no interface for other programs. A
request has the token of a member; viewers pull, editors push.
"""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edison_ci.access.site import Role
from edison_ci.api.bundles import trusted_keys, write_bundle
from edison_ci.errors import EdisonError, UsageError
from edison_ci.features.site.projects import Projects, create_project
from edison_ci.features.site.uploads import PUSH, UploadRefused, Uploads
from edison_ci.store.database import migrations, open_reader
from edison_ci.store.runs import FINAL, final_runs, find_run, origin_of
from edison_ci.web.api import ApiError, authorize, error_reply, json_reply
from edison_ci.web.databases import settings_of
from edison_ci.web.identity import header
from edison_ci.web.page_context import TRANSFER
from edison_ci.web.security import MOST_PART, PAGE_HEADERS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from edison_ci.access.site import Actor, Site
    from edison_ci.api.bundles import ImportedRuns

PULL = "pull runs"
_PER_REPLY = 500
_AT_ONCE = asyncio.Semaphore(2)
"""Imports take a thread each, and pages need some too."""
_CHUNK = 1 << 20


def transfer_routes() -> list[tuple[str, Callable[..., Awaitable[Any]]]]:
    """Return the patterns with their views."""
    return [
        (f"^{TRANSFER}$", _described),
        (f"^{TRANSFER}/projects$", _create),
        (f"^{TRANSFER}/runs$", _runs),
        (f"^{TRANSFER}/runs/(?P<run>[^/]+)$", _download),
        (f"^{TRANSFER}/uploads/(?P<name>[^/]+)$", _upload),
    ]


async def _described(datasette: Any, request: Any) -> Any:
    """Report what this project accepts."""
    try:
        site, actor = await authorize(datasette, request, Role.VIEWER, PULL)
    except EdisonError as error:
        return error_reply(error)
    settings = settings_of(datasette)
    assert settings is not None and actor.role is not None, "who is authorized has both"
    description = {
        "project": site.file.project,
        "results_version": len(migrations()),
        "role": actor.role.word,
        "push_limit_bytes": 0 if settings.is_home else settings.access.push_limit,
        "part_bytes": MOST_PART,
    }
    return json_reply(200, description)


async def _create(datasette: Any, request: Any) -> Any:
    """Make a project of the site, for its first push."""
    try:
        settings = settings_of(datasette)
        limit = settings.access.push_limit if settings is not None else 0
        if settings is None or settings.projects is None or not settings.is_home or not limit:
            raise _no_push()
        projects = settings.projects
        assert isinstance(projects, Projects), "only a site with projects accepts pushes"
        site, actor = await authorize(datasette, request, Role.EDITOR, "create project")
        body = await request.post_vars()
        made = await asyncio.to_thread(
            create_project,
            site,
            actor,
            projects,
            body.get("project", ""),
            body.get("description", ""),
        )
    except EdisonError as error:
        return error_reply(error)
    return json_reply(201, {"project": made.name})


async def _runs(datasette: Any, request: Any) -> Any:
    """List the runs that have ended, a part at a time."""
    try:
        site, _ = await authorize(datasette, request, Role.VIEWER, PULL)
        after = request.args.get("after") or ""
        return json_reply(200, await asyncio.to_thread(_listed, site, after))
    except EdisonError as error:
        return error_reply(error)


def _listed(site: Site, after: str) -> dict[str, Any]:
    keys = trusted_keys(site.root)
    with closing(open_reader(site.results)) as reader:
        ids = final_runs(reader, after=after, most=_PER_REPLY)
        origins = {run_id: origin_of(reader, run_id) for run_id in ids}
    runs = [
        {"run_id": run_id, "trusted": origin is None or origin.is_trusted(keys)}
        for run_id, origin in origins.items()
    ]
    return {"runs": runs, "next": ids[-1] if len(ids) == _PER_REPLY else None}


async def _upload(datasette: Any, request: Any, receive: Any) -> Any:
    """Report how much of a bundle is here, or take more of it; the last part imports it."""
    name = request.url_vars["name"]
    settings = settings_of(datasette)
    limit = settings.access.push_limit if settings is not None and not settings.is_home else 0
    try:
        site, actor = await authorize(datasette, request, Role.EDITOR, PUSH, name[:12])
        if not limit:
            raise _no_push()
        uploads = Uploads(site, limit, actor)
        if request.method == "GET":
            here = await asyncio.to_thread(uploads.received, name)
            return json_reply(200, {"received": here})
        offset, total = _number(request, b"upload-offset"), _number(request, b"upload-length")
        data = await _body(receive)
        async with _AT_ONCE:
            return await asyncio.to_thread(_taken, uploads, (name, offset, total, data))
    except EdisonError as error:
        return error_reply(error)


def _taken(uploads: Uploads, part: tuple[str, int, int, bytes]) -> Any:
    name, _, total, _ = part
    try:
        here = uploads.add(*part)
        if here < total:
            return json_reply(200, {"received": here})
        return json_reply(201, _imported(uploads.finish(name)))
    except UploadRefused as refused:
        if refused.status == 413:
            site = uploads.site
            entry = site.entry(uploads.actor, f"refused: {PUSH}", name[:12], after=refused.message)
            site.note(entry)
        error = {"code": refused.reason, "message": refused.message, "hint": refused.hint or ""}
        return json_reply(refused.status, {"error": error, "received": refused.received})


def _imported(taken: ImportedRuns) -> dict[str, Any]:
    return {
        "new": [run.id for run in taken.new],
        "known": [run.id for run in taken.known],
        "signed": taken.signed_by is not None,
        "trusted": taken.trusted,
    }


async def _body(receive: Any) -> bytes:
    """Return what came of a body: where the sender is cut off, the bytes until then count."""
    data = bytearray()
    while len(data) <= MOST_PART:
        message = await receive()
        if message["type"] != "http.request":
            break
        data += message.get("body", b"")
        if not message.get("more_body"):
            break
    return bytes(data[:MOST_PART])


def _number(request: Any, name: bytes) -> int:
    value = header(request.scope, name)
    if not value.isascii() or not value.isdecimal() or len(value) > 15:
        raise ApiError(400, "invalid", f"the header {name.decode()} is missing or no number")
    return int(value)


def _no_push() -> ApiError:
    return ApiError(
        403, "no_push", "this site accepts no runs", "start it with --projects and --accept-push"
    )


async def _download(datasette: Any, request: Any, send: Any) -> Any:
    """Send the bundle of a run, from a byte on if it is still the same."""
    run_id = request.url_vars["run"]
    try:
        site, actor = await authorize(datasette, request, Role.VIEWER, PULL, f"run {run_id}")
    except EdisonError as error:
        return error_reply(error)
    with tempfile.TemporaryDirectory(prefix="edison-pull-") as folder:
        path = Path(folder) / "run.zip"
        try:
            sha256 = await asyncio.to_thread(_write, site, actor, run_id, path)
        except EdisonError as error:
            return error_reply(error)
        size, start = path.stat().st_size, _start(request, sha256)
        headers = {
            **PAGE_HEADERS,
            "cache-control": "private, no-store",
            "content-type": "application/zip",
            "etag": f'"{sha256}"',
            "content-length": str(max(0, size - start)),
        }
        if start:
            headers["content-range"] = f"bytes {start}-{size - 1}/{size}"
        raw_headers = [(name.encode(), value.encode()) for name, value in headers.items()]
        status = 206 if start else 200
        await send({"type": "http.response.start", "status": status, "headers": raw_headers})
        with path.open("rb") as stream:
            stream.seek(start)
            while chunk := stream.read(_CHUNK):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    return None


def _write(site: Site, actor: Actor, run_id: str, path: Path) -> str:
    with closing(open_reader(site.results)) as reader:
        try:
            run = find_run(reader, run_id)
        except UsageError as error:
            raise ApiError(404, "not_found", error.message, error.hint) from None
    if run.status not in FINAL:
        raise ApiError(409, "not_ended", f"run {run.id} has not ended", "pull it when it has")
    write_bundle(site, [run], path, actor)
    site.note_export(f"run {run.id} as a bundle", "a pull", actor)
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _start(request: Any, sha256: str) -> int:
    """Return from which byte on a bundle is sent; 0 unless the client has the start of this one."""
    range_ = header(request.scope, b"range")
    number = range_.removeprefix("bytes=").removesuffix("-")
    same = header(request.scope, b"if-range") == f'"{sha256}"'
    plain = number.isascii() and number.isdecimal() and len(number) < 15
    return int(number) if same and plain else 0
