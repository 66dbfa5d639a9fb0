"""Stored answers leave as a recording, whole or not at all."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from docs.sample import Sample, build
from edison_ci.errors import UsageError
from edison_ci.operate.exporting import export_recording, write_over_recording
from edison_ci.operate.site import Site, site_at
from edison_ci.providers.recording import FIRST_LINE, read_recording
from tests.opened import opened

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import Folder


@pytest.fixture
def site(mini: Folder) -> Site:
    (mini.path / ".edison").mkdir(exist_ok=True)
    build(mini.path / ".edison/results.db")
    return site_at(mini.path)


def change(site: Site, sql: str) -> None:
    with opened(site.results) as connection:
        connection.execute(sql)


def test_a_recording_has_the_newest_answer_of_every_call_in_order(
    site: Site, tmp_path: Path
) -> None:
    with opened(site.results) as connection:
        sample, time = Sample(connection), "2026-11-15T10:00:00Z"
        booking = sample.booking("20261115T090000-bbbbbb", "refund", "small", time, reuse=False)
        sample.bought(booking, "Second thoughts.")
    assert export_recording(site, tmp_path / "all.jsonl") == 4
    first, *lines = (tmp_path / "all.jsonl").read_text(encoding="utf-8").splitlines()
    assert first == FIRST_LINE
    rows = [json.loads(line) for line in lines]
    assert [row["address"] for row in rows] == sorted(row["address"] for row in rows)
    (again,) = [row for row in rows if row["take"] == 1]
    assert again == {
        "address": booking.address,
        "take": 1,
        "text": "Second thoughts.",
        "tool_calls": None,
        "finish_reason": "stop",
        "tokens_in": 40,
        "tokens_out": 2,
        "latency_ms": 202,
        "served_model": "small-2026",
        "cost_microusd": 84,
    }


def test_what_was_exported_can_be_replayed(site: Site, tmp_path: Path) -> None:
    path = tmp_path / "all.jsonl"
    export_recording(site, path)
    with path.open("rb") as stream:
        texts = {answer.text for answer in read_recording(stream, "all.jsonl")}
    assert "No." in texts and len(texts) == 4


def test_a_text_that_was_tampered_with_is_not_recorded(site: Site, tmp_path: Path) -> None:
    change(site, "update answer_text set text = 'forged' where text = 'No.'")
    assert export_recording(site, tmp_path / "all.jsonl") == 3


def test_a_private_project_exports_no_texts(site: Site, mini: Folder, tmp_path: Path) -> None:
    mini.write("edison.yaml", "version: 1\nproject: mini\nsettings: {private: true}\n")
    with pytest.raises(UsageError, match="private"):
        export_recording(site_at(mini.path), tmp_path / "more.jsonl")
    assert not (tmp_path / "more.jsonl").exists()


def test_a_recording_is_written_over_another_one_only(tmp_path: Path) -> None:
    path = tmp_path / "all.jsonl"
    assert write_over_recording(path, ["{}"]) == 1
    assert write_over_recording(path, []) == 0
    assert path.read_text() == FIRST_LINE + "\n"
    other = tmp_path / "data.jsonl"
    other.write_text('{"id": 1}\n')
    with pytest.raises(UsageError, match="no recording"):
        write_over_recording(other, [])
    assert other.read_text() == '{"id": 1}\n'


def test_a_recording_that_fails_half_way_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "all.jsonl"
    write_over_recording(path, ["{}"])

    def lines() -> Iterator[str]:
        yield "{}"
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        write_over_recording(path, lines())
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["all.jsonl"]
    assert path.read_text() == FIRST_LINE + "\n{}\n"
