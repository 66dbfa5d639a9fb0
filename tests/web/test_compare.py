"""The comparison on a page says what the command says, with the answers side by side."""

from __future__ import annotations

import json
import re
import sys
from html import unescape
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest

from edison_ci.records import Move
from tests import forked
from tests.timing import PATIENCE_S
from tests.web.conftest import LINES, environment
from tests.web.test_pages import one_line

if TYPE_CHECKING:
    from tests.web.conftest import Server, Stored


def command(stored: Stored, *words: str) -> Any:
    done = forked.run(
        [sys.executable, "-P", "-m", "edison_ci", "compare", *words, "--json"],
        cwd=stored.project, env=environment(LINES[0]), capture_output=True, text=True, check=True,
        timeout=PATIENCE_S,
    )  # fmt: skip
    return json.loads(done.stdout)


def page(server: Server, **args: str) -> str:
    answer = server.get(f"/-/edison/compare?{urlencode(args)}")
    assert answer.status_code == 200
    return answer.text


@pytest.mark.nightly
def test_runs_refs_and_versions_are_compared_as_by_the_command(
    server: Server, stored: Stored
) -> None:
    first = stored.one("select min(id) from run where experiment = 'support-reply'")
    old = stored.one("select substr(version, 1, 12) from cell where run_id = ?", first)
    version = f"support-reply@{old}"
    for a, b in (("main", stored.against), (version, stored.against), (stored.against, first)):
        said = command(stored, a, b)
        text = one_line(page(server, a=a, b=b))
        assert said["sentence"] in text, (a, b)
        for note in said["notes"]:
            assert note in text
        for move in Move:
            count = len(said[str(move)])
            assert (f"{move.words} {count}" in text) is bool(count), (a, b, move)


def test_a_run_is_compared_with_its_base_by_default(server: Server, stored: Stored) -> None:
    said = command(stored, "main", stored.against)
    text = one_line(page(server, b=stored.against))
    assert said["sentence"] in text
    assert f"main (run {stored.against}, its base)" in text
    alone = stored.one("select id from run where base_commit is null limit 1")
    text = one_line(page(server, b=alone))
    assert f"run {alone} was measured without a base" in text


def test_pairs_stand_together_with_a_diff_to_the_base(server: Server, stored: Stored) -> None:
    body = page(server, b=stored.against)
    pairs = re.findall(r'<div class="pair">(.*?)</div></div>', body, re.S)
    titles = [re.findall(r"pair-title[^>]*>([^<]+)<", pair) for pair in pairs]
    assert titles[:4] == [["large"], ["small"], ["large"], ["small"]], "two models, A and B of each"
    for pair in pairs:
        cells = re.findall(r"/-/edison/cell/(\w{12})", pair)
        about = [
            stored.rows("select side, model, case_id from cell where id >= ? order by id limit 1",
                        cell)[0] for cell in cells
        ]  # fmt: skip
        assert [side for side, *_ in about] == ["base", "head"]
        assert about[0][1:] == about[1][1:]
    assert "<ins>" in body
    assert "<del>" in body
    full = page(server, b=stored.against, full="1")
    assert "<ins>" not in full
    (text,) = stored.rows(
        "select x.text from answer_text x join cell c on x.request_hash = c.request_hash and "
        "x.answer_no = c.answer_no where c.id >= ? order by c.id limit 1",
        re.findall(r'/-/edison/cell/(\w{12})', full)[1])[0]  # fmt: skip
    assert text.strip() in unescape(full)
    assert "Reasons" in body


def test_changed_cases_come_first_and_can_be_chosen(server: Server, stored: Stored) -> None:
    said = command(stored, "main", stored.against)
    order = [each["case"] for move in Move for each in said[str(move)]]
    shown = re.findall(r'/case\?case=([^"&]+)"', page(server, b=stored.against))
    assert shown == order[:5]
    only = page(server, b=stored.against, move="fixed")
    assert re.findall(r'/case\?case=([^"&]+)"', only) == [e["case"] for e in said["fixed"]][:5]


def test_what_cannot_be_compared_is_said_with_the_form(server: Server, stored: Stored) -> None:
    for a, said in (
        ("nowhere", "'nowhere' is not a run, experiment or commit"),
        ("--output=x", "is not a run, experiment or commit"),
        ("support-reply@0000", "no complete run has support-reply in version 0000"),
    ):
        body = page(server, a=a, b=stored.against)
        assert said in one_line(body)
        assert f'value="{a}"' in body
    assert "Nothing to compare yet" in one_line(page(server))
    assert "no complete run has both" in one_line(
        page(server, a="support-reply", b="judge", prompts="1")
    ) or "there is no prompt" in one_line(page(server, a="support-reply", b="judge", prompts="1"))
