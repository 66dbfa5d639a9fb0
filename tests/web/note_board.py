"""`edison serve` with one form more: what a person writes becomes a row of the audit."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
from pathlib import Path
from typing import Any

from datasette import Response, hookimpl
from datasette.plugins import pm

from edison_ci.access.site import Role, open_site
from edison_ci.errors import UsageError
from edison_ci.store.audit import write_audit
from edison_ci.web.forms import FormRequest, FormRoute, form_view
from edison_ci.web.serving import Serving, serve


def note(sent: FormRequest) -> str:
    """Write a note down."""
    text = sent.form.text("text")
    if not text:
        raise UsageError("a note says nothing", hint="write something")
    entry = sent.site.entry(sent.actor, "note", sent.path["about"], after=text)
    write_audit(sent.site.results, entry)
    return sent.links.to("audit")


class Board:
    """The form, and where it is sent."""

    __name__ = "board"

    @hookimpl  # type: ignore[untyped-decorator]
    def register_routes(self) -> list[tuple[str, Any]]:
        async def form(request: Any) -> Any:
            return Response.html(request.scope["csrftoken"]())

        post = FormRoute("^/-/note/(?P<about>[^/]+)$", Role.REVIEWER, "note", note)
        return [(post.pattern, form_view(post)), ("^/-/form$", form)]


def main(folder: Path) -> None:
    """Serve until somebody ends it."""
    pm.register(Board(), name="board")
    site = open_site(folder)
    person = site.actor().identity
    serving = Serving(site.results, site.root, "notes", "127.0.0.1", 0, person)

    def ready(_address: str, port: int) -> None:
        sys.stdout.write(json.dumps({"port": port}, indent=1) + "\n")
        sys.stdout.flush()

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt):
        serve(serving, ready)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
