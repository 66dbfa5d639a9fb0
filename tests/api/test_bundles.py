"""Archives of strangers: only what is expected comes out, and never too much of it."""

from __future__ import annotations

import json
import stat
import struct
import zipfile
from random import Random
from typing import TYPE_CHECKING

import pytest

from docs.sample import Sample, build
from edison_ci.access.site import Site, open_site
from edison_ci.api.bundles import MOST_BYTES, pack, unpack
from edison_ci.api.recordings import export_recording, replace_recording
from edison_ci.errors import UsageError
from edison_ci.providers.replay import FIRST_LINE, read_recording
from tests.opened import opened

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import Folder

pytestmark = pytest.mark.daily

WANTED = {"a.txt": 1_000, "b.db": 50_000_000}


@pytest.fixture
def inside(tmp_path: Path) -> Path:
    folder = tmp_path / "inside"
    folder.mkdir()
    return folder


def archive(tmp_path: Path, *members: tuple[str | zipfile.ZipInfo, bytes], **how: int) -> Path:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w", how.get("method", zipfile.ZIP_DEFLATED)) as made:
        for name, content in members:
            made.writestr(name, content)
    return path


def refused(path: Path, folder: Path) -> str:
    before = sorted(folder.parent.rglob("*"))
    with pytest.raises(UsageError) as error:
        unpack(path, WANTED, folder)
    outside = [p for p in sorted(folder.parent.rglob("*")) if folder not in p.parents]
    assert outside == [p for p in before if folder not in p.parents], "nothing lands elsewhere"
    return error.value.message


def test_what_is_packed_is_unpacked(tmp_path: Path, inside: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(Random(0).randbytes(3_000_000))
    size = pack(tmp_path / "x.zip", {"a.txt": b"hello", "b.db": source})
    assert size == (tmp_path / "x.zip").stat().st_size
    found = unpack(tmp_path / "x.zip", WANTED, inside)
    assert found["a.txt"].path.read_bytes() == b"hello"
    assert (found["b.db"].size_bytes, found["b.db"].path.parent) == (3_000_000, inside)
    first = (tmp_path / "x.zip").read_bytes()
    pack(tmp_path / "x.zip", {"a.txt": b"hello", "b.db": source})
    assert (tmp_path / "x.zip").read_bytes() == first, "the same content is the same archive"


@pytest.mark.parametrize(
    "name",
    ["../evil", "/etc/evil", "a.txt/../../evil", "..\\evil", "C:\\evil", "a.txt/", "A.TXT", "a\nb"],
)
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, inside: Path, name: str) -> None:
    path = archive(tmp_path, ("a.txt", b"1"), ("b.db", b"2"), (name, b"3"))
    assert "is not a valid bundle: " in refused(path, inside)


def test_each_file_is_there_once(tmp_path: Path, inside: Path) -> None:
    assert "b.db is missing" in refused(archive(tmp_path, ("a.txt", b"1")), inside)
    with pytest.warns(UserWarning, match="Duplicate"):
        twice = archive(tmp_path, ("a.txt", b"1"), ("a.txt", b"2"), ("b.db", b"3"))
    assert "a.txt is in it twice" in refused(twice, inside)


def test_a_link_is_refused(tmp_path: Path, inside: Path) -> None:
    link = zipfile.ZipInfo("a.txt")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    path = archive(tmp_path, (link, b"/etc/passwd"), ("b.db", b"2"))
    assert "a.txt is not a regular file" in refused(path, inside)


def test_a_way_of_packing_that_is_not_ours_is_refused(tmp_path: Path, inside: Path) -> None:
    path = archive(tmp_path, ("a.txt", b"1"), ("b.db", b"2"), method=zipfile.ZIP_BZIP2)
    assert "unsupported compression" in refused(path, inside)
    locked = bytearray(archive(tmp_path, ("a.txt", b"1"), ("b.db", b"2")).read_bytes())
    for mark, offset in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        locked[locked.index(mark) + offset] |= 1
    path.write_bytes(locked)
    assert "unsupported compression" in refused(path, inside)


def test_a_bomb_is_stopped_before_it_fills_anything(tmp_path: Path, inside: Path) -> None:
    path = archive(tmp_path, ("a.txt", b"1"), ("b.db", bytes(40_000_000)))
    assert path.stat().st_size < 100_000
    assert "b.db is too large" in refused(path, inside)
    assert (inside / "b.db").stat().st_size < 6_000_000
    small = archive(tmp_path, ("a.txt", b"1" * 1_001), ("b.db", b""))
    for left in inside.iterdir():
        left.unlink()
    assert "a.txt is too large" in refused(small, inside)


def test_sizes_that_lie_are_found(tmp_path: Path, inside: Path) -> None:
    raw = bytearray(archive(tmp_path, ("a.txt", b"1" * 100), ("b.db", b"2")).read_bytes())
    place = raw.index(b"PK\1\2") + 24
    raw[place : place + 4] = struct.pack("<L", 5)
    path = tmp_path / "x.zip"
    path.write_bytes(raw)
    assert "it is damaged" in refused(path, inside)


@pytest.mark.parametrize("cut", [0, 1, 21, 60])
def test_half_an_archive_is_refused(tmp_path: Path, inside: Path, cut: int) -> None:
    whole = archive(tmp_path, ("a.txt", b"1"), ("b.db", b"2")).read_bytes()
    path = tmp_path / "x.zip"
    path.write_bytes(whole[:cut])
    assert "is not a ZIP file" in refused(path, inside)
    path.write_bytes(whole[cut + 10 :])
    assert "is not a valid bundle" in refused(path, inside)


def test_an_archive_of_very_many_files_is_not_even_listed(tmp_path: Path, inside: Path) -> None:
    many = [(f"{i}", b"") for i in range(101)]
    assert "more than 100 files" in refused(archive(tmp_path, *many), inside)
    whole = archive(tmp_path, ("a.txt", b"1"), ("b.db", b"2")).read_bytes()
    path = tmp_path / "x.zip"
    path.write_bytes(whole[:-22] + b"PK\6\7" + bytes(16) + whole[-22:])
    assert "more than 100 files" in refused(path, inside)


def test_an_archive_that_is_too_large_is_not_even_opened(tmp_path: Path, inside: Path) -> None:
    path = tmp_path / "x.zip"
    with path.open("wb") as stream:
        stream.truncate(MOST_BYTES + 1)
    assert "bytes, more than 1,000,000,000" in refused(path, inside)
    assert "does not exist" in refused(tmp_path / "nothing.zip", inside)


def test_a_damaged_file_is_found_by_its_checksum(tmp_path: Path, inside: Path) -> None:
    raw = bytearray(
        archive(
            tmp_path, ("a.txt", b"hello"), ("b.db", b"2"), method=zipfile.ZIP_STORED
        ).read_bytes()
    )
    raw[raw.index(b"hello")] ^= 1
    path = tmp_path / "x.zip"
    path.write_bytes(raw)
    assert "Bad CRC" in refused(path, inside)


def test_an_older_file_stays_when_a_new_one_cannot_be_written(tmp_path: Path) -> None:
    target = tmp_path / "x.zip"
    target.write_bytes(b"older")
    with pytest.raises(UsageError, match="cannot be written: No such file"):
        pack(target, {"a.txt": tmp_path / "nothing"})
    assert target.read_bytes() == b"older"
    assert [p.name for p in tmp_path.iterdir()] == ["x.zip"]


@pytest.fixture
def site(mini: Folder) -> Site:
    (mini.path / ".edison").mkdir(exist_ok=True)
    build(mini.path / ".edison/results.db")
    return open_site(mini.path)


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
    assert [row["request_hash"] for row in rows] == sorted(row["request_hash"] for row in rows)
    (again,) = [row for row in rows if row["answer_no"] == 1]
    assert again == {
        "request_hash": booking.request_hash,
        "answer_no": 1,
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
        export_recording(open_site(mini.path), tmp_path / "more.jsonl")
    assert not (tmp_path / "more.jsonl").exists()


def test_a_recording_is_written_over_another_one_only(tmp_path: Path) -> None:
    path = tmp_path / "all.jsonl"
    assert replace_recording(path, ["{}"]) == 1
    assert replace_recording(path, []) == 0
    assert path.read_text() == FIRST_LINE + "\n"
    other = tmp_path / "data.jsonl"
    other.write_text('{"id": 1}\n')
    with pytest.raises(UsageError, match="not a recording"):
        replace_recording(other, [])
    assert other.read_text() == '{"id": 1}\n'


def test_a_recording_that_fails_half_way_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "all.jsonl"
    replace_recording(path, ["{}"])

    def lines() -> Iterator[str]:
        yield "{}"
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        replace_recording(path, lines())
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["all.jsonl"]
    assert path.read_text() == FIRST_LINE + "\n{}\n"
