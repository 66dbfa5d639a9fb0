"""Errors of pages and of the HTTP API name their time and trace, by which the log has them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.web.conftest import LINES

if TYPE_CHECKING:
    from tests.web.conftest import Server

pytestmark = pytest.mark.daily

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


@pytest.mark.parametrize("server", LINES, indirect=True)
def test_an_error_page_names_time_and_trace(server: Server) -> None:
    for address in ("/-/edison/run/nothing", "/-/edison/experiment/nothing/export?format=csv"):
        page = server.get(address, headers=PARENT)
        assert page.status_code == 404
        assert f'trace <span class="mono">{TRACE}</span>' in page.text
        assert re.search(rf'<time datetime="{TIME.pattern}"', page.text)
    found = {
        re.search(r'trace <span class="mono">([0-9a-f]{32})<', server.get(address).text)[1]  # type: ignore[index]  # it is there
        for address in ("/-/edison/run/nothing",) * 2
    }
    assert len(found) == 2, "each request has its own"


@pytest.mark.parametrize("server", LINES[:1], indirect=True)
@pytest.mark.parametrize("parent", ["00-" + "0" * 32 + "-b7ad6b7169203331-01", "x", "<b>", TRACE])
def test_what_is_no_trace_is_not_taken_over(server: Server, parent: str) -> None:
    page = server.get("/-/edison/run/nothing", headers={"traceparent": parent})
    trace = re.search(r'trace <span class="mono">(.*?)</span>', page.text)
    assert trace is not None
    assert re.fullmatch("[0-9a-f]{32}", trace[1])
    assert trace[1] not in (TRACE, "0" * 32)


@pytest.mark.parametrize("server", LINES[:1], indirect=True)
def test_an_error_over_http_names_them_too(server: Server) -> None:
    for address, status in (("/-/edison/api/v1/runs/x", 401), ("/-/edison/api/v1/nothing", 404)):
        reply = server.get(address, headers=PARENT)
        assert reply.status_code == status
        error = reply.json()["error"]
        assert error["trace_id"] == TRACE
        assert TIME.fullmatch(error["time"])
    refused = server.get("/-/edison?" + "a=1&" * 200, headers=PARENT)
    assert refused.status_code == 400
    assert f"trace {TRACE}" in refused.text
