"""`edison push` and `edison pull`: runs move between results files and a site, as signed bundles.

Each run is a separate bundle. It is sent in parts, from the byte that the site has; a pull
continues at the byte that is here. A connection that breaks is tried again a few times; what was
sent or received by then stays, also for the next time the command is started.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from edison_ci._dataclass import dataclass
from edison_ci.access import site as sites
from edison_ci.api import bundles
from edison_ci.documents.files import make_folder
from edison_ci.errors import DeliveryError, EdisonError, UsageError
from edison_ci.features.site import client as site_client
from edison_ci.features.site import uploads
from edison_ci.providers import transport
from edison_ci.sanitize import line
from edison_ci.store import database, liveness
from edison_ci.store import runs as store_runs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import httpx

    from edison_ci.access.site import Actor, Site
    from edison_ci.store.runs import Run

TOKEN = "EDISON_TOKEN"
"""Environment variable of the token, its only source."""
_API = "-/edison/api/transfer"
_TIMEOUT_S = 60.0
_IMPORT_S = 600.0
"""The last part is answered when the run is imported."""
_TRIES = 5
_LONGEST_WAIT_S = 60.0
_TOO_MANY, _RATE_WAIT_S = 429, 15.0
"""Status of a site that has had too many requests, and the wait if it does not say how long: sites
count requests by the minute."""
_SHORTEST_PART = 4_096
_MOST_REPLY = 1_000_000
_MOST_PAGES = 200
"""Replies in which a site lists its runs: 100,000 runs."""
_GLANCE_S = 0.2
_SHOWN = 500
_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})


class Sent(NamedTuple):
    """A run that was pushed or pulled."""

    run_id: str
    new: bool
    """False if the other side, or this one, had it already."""
    trusted: bool
    """Whether it may serve as base there: signed with a key that is trusted there."""
    bytes: int = 0


class Progress(NamedTuple):
    """How far a run is."""

    run_id: str
    done: int
    total: int
    waiting: bool = False
    """Whether another process fetches runs here, which comes first."""


@dataclass(slots=True)
class Remote:
    """The place of this project at a site."""

    site: Site
    address: str
    _client: httpx.Client
    wait: Callable[[float], None] = time.sleep

    @property
    def host(self) -> str:
        """The host of the site, with its port."""
        return urlsplit(self.address).netloc

    @property
    def _project(self) -> str:
        return f"{self.address}/projects/{self.site.file.slug}/{_API}"

    def describe(self) -> dict[str, Any] | None:
        """Return what the site says of this project; None if it does not have it."""
        status, reply = self._ask("GET", self._project)
        if status == 404:
            return None
        return _done(status, reply)

    def create(self) -> None:
        """Have the site make this project."""
        file = self.site.file
        data = {"project": file.project, "description": file.description}
        _done(*self._ask("POST", f"{self.address}/{_API}/projects", data=data))

    def runs(self) -> dict[str, bool]:
        """Return the runs that the site has, and whether it trusts them."""
        trusted: dict[str, bool] = {}
        after = ""
        for _ in range(_MOST_PAGES):
            page = _done(*self._ask("GET", f"{self._project}/runs", params={"after": after}))
            try:
                trusted |= {str(run["run_id"]): run["trusted"] is True for run in page["runs"]}
                following = page["next"]
            except (KeyError, TypeError):
                raise self._bad_reply("no list of runs") from None
            if following is None:
                return trusted
            after = str(following)
        raise self._bad_reply(f"a list of runs that does not end within {_MOST_PAGES} parts")

    def _bad_reply(self, what: str) -> UsageError:
        """Return the error for a reply that no site of this version sends."""
        return UsageError(
            f"{self.host} sent {what}", hint="check the address, and that its edison is this one"
        )

    def number(self, reply: dict[str, Any], name: str, most: int) -> int:
        """Return a number of a reply, from 0 to the most that it can be."""
        number = reply.get(name)
        if type(number) is not int or not 0 <= number <= most:
            raise self._bad_reply(f"no valid {name}")
        return number

    def upload(
        self, bundle: Path, part_bytes: int, on_bytes: Callable[[int], None]
    ) -> dict[str, Any]:
        """Send a bundle, from the byte that the site has; return what the site made of it."""
        total, most = bundle.stat().st_size, part_bytes
        url = f"{self._project}/uploads/{_sha256(bundle)}"
        received = self._received(url, total)
        stalls = _Stalls(received)
        with bundle.open("rb") as stream:
            while True:
                on_bytes(received)
                stream.seek(received)
                headers = {"upload-offset": str(received), "upload-length": str(total)}
                part, wait_s = stream.read(part_bytes), 0.0
                try:
                    status, answer = self._once("POST", url, content=part, headers=headers)
                    part_bytes = min(most, 2 * part_bytes)
                except _Broken as broken:
                    # A shorter part gets through where connections do not last.
                    if not broken.wait_s:  # else it was refused, and did not break off
                        part_bytes = max(_SHORTEST_PART, part_bytes // 16)
                    if stalls.too_many:
                        raise DeliveryError(
                            f"{self.host} broke off: {broken}", hint="push again to continue there"
                        ) from None
                    status, answer, wait_s = 409, {}, broken.wait_s
                if status == 201:
                    on_bytes(total)
                    return answer
                if status == 409 and not stalls.too_many:
                    # Cut off, or another push of the same bundle is ahead: continue after what
                    # is there.
                    if wait_s:
                        self.wait(wait_s)
                    received = self._received(url, total)
                else:
                    received = self.number(_done(status, answer), "received", total)
                if stalls.too_many and received <= stalls.furthest:
                    raise DeliveryError(f"{self.host} keeps no more of it", hint="push it again")
                stalls.note(received)
                self.wait(2**stalls.waits / 8 if stalls.waits else 0)

    def _received(self, url: str, total: int) -> int:
        return self.number(_done(*self._ask("GET", url)), "received", total)

    def download(self, run_id: str, target: Path, on_bytes: Callable[[int, int], None]) -> None:
        """Fetch the bundle of a run, from the byte that is here."""
        mark = target.with_suffix(".etag")
        for tried in range(_TRIES + 1):
            try:
                self._continue(run_id, target, mark, on_bytes)
            except _Broken as broken:
                if tried == _TRIES:
                    raise DeliveryError(
                        f"{self.host} did not answer: {broken}", hint="pull again to continue"
                    ) from None
                self.wait(broken.wait_s or 2**tried / 4)
                continue
            if _sha256(target) == mark.read_text(encoding="ascii"):
                return
            target.unlink()
        raise DeliveryError(f"the bytes of run {run_id} do not arrive whole", hint="pull it again")

    def _continue(
        self, run_id: str, target: Path, mark: Path, on_bytes: Callable[[int, int], None]
    ) -> None:
        have = target.stat().st_size if target.exists() and mark.exists() else 0
        headers = {}
        if have:
            entity_tag = mark.read_text(encoding="ascii")
            headers = {"range": f"bytes={have}-", "if-range": f'"{entity_tag}"'}
        url = f"{self._project}/runs/{run_id}"
        with _answers(), self._client.stream("GET", url, headers=headers) as reply:
            if reply.status_code not in (200, 206):
                document = _read(reply)
                if reply.status_code in _AGAIN:
                    raise _Broken(f"HTTP {reply.status_code}", _wait_s(reply))
                _done(reply.status_code, document)
            have = have if reply.status_code == 206 else 0
            total = have + int(reply.headers.get("content-length", 0))
            if total > bundles.MOST_BYTES:
                raise UsageError(
                    f"run {run_id} has {total:,} bytes, more than {bundles.MOST_BYTES:,}"
                )
            mark.write_text(reply.headers.get("etag", "").strip('"'), encoding="ascii")
            with target.open("ab" if have else "wb") as stream:
                for chunk in reply.iter_raw():
                    have += len(chunk)
                    if have > total:
                        raise UsageError(f"{self.host} sends more of run {run_id} than it said")
                    stream.write(chunk)
                    on_bytes(have, total)

    def _ask(self, method: str, url: str, **given: Any) -> tuple[int, dict[str, Any]]:
        """Return status and JSON of a reply; asks again while the site cannot be reached."""
        for tried in range(_TRIES):
            try:
                return self._once(method, url, **given)
            except _Broken as broken:
                self.wait(broken.wait_s or 2**tried / 4)
        try:
            return self._once(method, url, **given)
        except _Broken as broken:
            raise DeliveryError(
                f"{self.host} did not answer: {broken}",
                hint="check the address and the network, and start the command again: it "
                "continues where it was",
            ) from None

    def _once(self, method: str, url: str, **given: Any) -> tuple[int, dict[str, Any]]:
        with _answers(), self._client.stream(method, url, **given) as reply:
            document = _read(reply)
            if reply.status_code in _AGAIN:
                raise _Broken(f"HTTP {reply.status_code}", _wait_s(reply))
            return reply.status_code, document


@dataclass(slots=True)
class _Stalls:
    """How often an upload got no further, so that it ends for any answers of a site."""

    furthest: int
    waits: int = 0
    """Since it got further last."""
    losses: int = 0
    """Times that the site had less than before: perhaps another push of it ended."""

    @property
    def too_many(self) -> bool:
        """Whether it is given up when it gets no further again."""
        return _TRIES in (self.waits, self.losses)

    def note(self, received: int) -> None:
        """Note how much the site has now."""
        self.waits = 0 if received > self.furthest else self.waits + 1
        self.losses += received < self.furthest
        self.furthest = received


class _Broken(Exception):
    """A reply that did not come, or not whole."""

    def __init__(self, why: str, wait_s: float = 0.0) -> None:
        super().__init__(why)
        self.wait_s = wait_s


@contextmanager
def _answers() -> Iterator[None]:
    """Translate what httpx raises."""
    import httpx

    try:
        yield
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        why = line(str(error)) or type(error).__name__
        raise _Broken(why[:_SHOWN]) from None


def _wait_s(reply: httpx.Response) -> float:
    asked = reply.headers.get("retry-after", "")
    usual = _RATE_WAIT_S if reply.status_code == _TOO_MANY else 0.0
    return min(float(asked), _LONGEST_WAIT_S) if asked.isdecimal() else usual


def _read(reply: httpx.Response) -> dict[str, Any]:
    body = b""
    for chunk in reply.iter_raw():
        body += chunk
        if len(body) > _MOST_REPLY:
            break
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    if isinstance(document, dict):
        return document
    return {"error": {"message": line(body[:_SHOWN].decode("utf-8", "replace").strip())}}


def _done(status: int, reply: dict[str, Any]) -> dict[str, Any]:
    """Return what a site told, or raise what it refused; its words are those of a stranger."""
    if status in (200, 201):
        return reply
    error = reply.get("error")
    error = error if isinstance(error, dict) else {}
    message = line(str(error.get("message", "")))[:_SHOWN] or "no reason was given"
    hint = line(str(error.get("hint", "")))[:_SHOWN]
    kind = DeliveryError if status >= 500 else UsageError
    raise kind(f"the site refused it: {message} (HTTP {status})", hint=hint)


@contextmanager
def connect(site: Site, url: str, *, offline: bool) -> Iterator[Remote]:
    """Yield the place of a project at a site; raises UsageError."""
    import httpx

    address = site_client.site_address(url, "URL")
    if offline:
        raise UsageError("network access is disabled by --offline", hint="run it without --offline")
    headers = site_client.site_headers(TOKEN, os.environ)
    timeout = httpx.Timeout(_TIMEOUT_S, read=_IMPORT_S)
    with httpx.Client(
        headers=headers, verify=transport.verification(), follow_redirects=False, timeout=timeout
    ) as client:
        yield Remote(site, address, client)


def push(
    remote: Remote, names: Sequence[str], on_progress: Callable[[Progress], None]
) -> Iterator[Sent]:
    """Send runs to a site; without names, all that have ended and are not there yet."""
    site = remote.site
    actor = site.require(sites.Role.EDITOR, "push runs", remote.host)
    runs = _chosen(site, names)
    description = remote.describe()
    if description is None:
        remote.create()
        description = remote.describe() or {}
    _refuse_version(description, remote.host)
    there = remote.runs()
    for run in runs:
        if run.id in there:
            if names:
                yield Sent(run.id, new=False, trusted=there[run.id])
            continue
        yield _push_one(remote, actor, run, description, on_progress)


def _push_one(
    remote: Remote,
    actor: Actor,
    run: Run,
    description: dict[str, Any],
    on_progress: Callable[[Progress], None],
) -> Sent:
    site, limit = remote.site, remote.number(description, "push_limit_bytes", 10**15)
    with tempfile.TemporaryDirectory(prefix="edison-push-") as folder:
        bundle = Path(folder) / "run.zip"
        size = bundles.write_bundle(site, [run], bundle, actor)
        if limit and size > limit:
            raise UsageError(
                f"run {run.id} has {size:,} bytes, and {remote.host} accepts {limit:,}",
                hint="remove old texts (edison admin gc), or have the site raise --push-limit",
            )
        site.note_export(f"run {run.id} as a bundle", remote.host, actor)
        done = remote.upload(
            bundle,
            max(_SHORTEST_PART, remote.number(description, "part_bytes", bundles.MOST_BYTES)),
            lambda received: on_progress(Progress(run.id, received, size)),
        )
    return Sent(run.id, run.id in done.get("new", ()), bool(done.get("trusted")), size)


def _chosen(site: Site, names: Sequence[str]) -> list[Run]:
    """Return the runs to push: those named, or all that ended and are of here, or trusted."""
    if not site.results.exists():
        raise UsageError("there are no results yet", hint="run an experiment: edison run")
    keys = bundles.trusted_keys(site.root)
    with closing(database.open_reader(site.results)) as reader:
        ids = names or store_runs.final_runs(reader)
        runs = {run.id: run for run in (store_runs.find_run(reader, name) for name in ids)}
        origins = {run_id: store_runs.origin_of(reader, run_id) for run_id in runs}
    foreign = {
        i for i, origin in origins.items() if origin is not None and not origin.is_trusted(keys)
    }
    if not names:
        return [run for run in runs.values() if run.id not in foreign]
    for run in runs.values():
        if run.status not in store_runs.FINAL:
            raise UsageError(
                f"run {run.id} has not ended", hint="push it when it has: edison runs watch"
            )
        if run.id in foreign:
            raise UsageError(
                f"run {run.id} was made elsewhere, and its signature is not trusted here",
                hint="push it from where it was made",
            )
    return list(runs.values())


def pull(
    remote: Remote, names: Sequence[str], on_progress: Callable[[Progress], None]
) -> Iterator[Sent]:
    """Fetch runs from a site; without names, all that are not here yet."""
    site = remote.site
    actor = site.require(sites.Role.EDITOR, "pull runs", remote.host)
    description = remote.describe()
    if description is None:
        raise UsageError(
            f"{remote.host} has no project {site.file.slug}, or it is not for you",
            hint="check the address, and `project` in edison.yaml",
        )
    _refuse_version(description, remote.host)
    there = remote.runs()
    unknown = [name for name in names if name not in there]
    if unknown:
        raise UsageError(f"{remote.host} has no run {unknown[0]!r} that has ended")
    here = _runs_here(site)
    for run_id in names or there:
        if run_id not in here:
            with _alone(remote, run_id, on_progress) as waited:
                if not (waited and run_id in _runs_here(site)):
                    yield _pull_one(remote, actor, run_id, on_progress)
                    continue
        if names:
            yield Sent(run_id, new=False, trusted=there[run_id])


def _runs_here(site: Site) -> frozenset[str]:
    if not site.results.exists():
        return frozenset()
    with closing(database.open_reader(site.results)) as reader:
        return frozenset(store_runs.final_runs(reader))


@contextmanager
def _alone(remote: Remote, run_id: str, on_progress: Callable[[Progress], None]) -> Iterator[bool]:
    """Wait until no other process fetches runs here; yields whether one did.

    What a pull has received of a run is kept for the next one, so that two would mix it up.
    """
    waited = False
    while True:
        with liveness.try_lock(remote.site.locks, "pull") as ours:
            if ours:
                yield waited
                return
        if not waited:
            on_progress(Progress(run_id, 0, 0, waiting=True))
        waited = True
        remote.wait(_GLANCE_S)


def _pull_one(
    remote: Remote, actor: Actor, run_id: str, on_progress: Callable[[Progress], None]
) -> Sent:
    site = remote.site
    bundle = _folder(site) / f"{hashlib.sha256(run_id.encode()).hexdigest()[:24]}.pull"
    remote.download(run_id, bundle, lambda have, total: on_progress(Progress(run_id, have, total)))
    size = bundle.stat().st_size
    arrival = bundles.Arrival("pull", remote.host, actor, bundles.trusted_keys(site.root), run_id)
    try:
        taken = bundles.import_bundle(site, bundle, arrival=arrival)
    except EdisonError as error:
        message = error.message.replace(str(bundle), f"what {remote.host} sent")
        site.note(site.entry(actor, "refused: pull runs", f"run {run_id}", after=message))
        raise UsageError(message, hint=error.hint or "") from None
    finally:
        bundle.unlink(missing_ok=True)
        bundle.with_suffix(".etag").unlink(missing_ok=True)
    return Sent(run_id, bool(taken.new), taken.trusted, size)


def _refuse_version(description: dict[str, Any], host: str) -> None:
    if description.get("results_version") != len(database.migrations()):
        raise UsageError(
            f"{host} has another version of edison", hint="use the same version here and there"
        )


def _folder(site: Site) -> Path:
    """Return the folder of what is on its way; it is not for Git."""
    folder = site.root / uploads.FOLDER
    make_folder(folder)
    return folder


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
