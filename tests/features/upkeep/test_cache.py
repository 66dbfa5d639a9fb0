"""edison admin cache and edison admin gc: what is stored, and what may go."""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING

import pytest

from docs.sample import build
from tests.opened import opened

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily


@pytest.fixture
def ran(mini: Folder) -> Folder:
    """A project with results."""
    (mini.path / ".edison").mkdir()
    build(mini.path / ".edison/results.db")
    return mini


def texts(folder: Folder) -> int:
    with opened(folder.path / ".edison/results.db") as connection:
        return int(connection.execute("select count(*) from answer_text").fetchone()[0])


def test_stats_show_what_reuse_saved(edison: Edison, ran: Folder) -> None:
    done = edison(ran, "admin", "cache", "stats")
    assert done.out.splitlines()[-1] == "4 answers, 8 uses: reuse saved $0.0011"
    document = json.loads(edison(ran, "admin", "cache", "stats", "--json").out)
    assert document["total"] == {
        "answers": 4,
        "texts": 4,
        "size_bytes": document["total"]["size_bytes"],
        "cost_microusd": 1120,
        "uses": 8,
        "saved_microusd": 1120,
        "simulated": 0,
    }
    assert document["models"][0]["model"] == "large"


def test_simulated_money_is_marked(edison: Edison, mini: Folder) -> None:
    mini.edit("models.yaml", "model: small}", "model: small, price: {in: 100, out: 100}}")
    edison(mini, "run", "-q")
    lines = edison(mini, "admin", "cache", "stats").out.splitlines()
    assert [line.endswith("  simulated") for line in lines] == [False, True, True, True]
    assert lines[1].split()[6] == "$0", "as everywhere else"
    found = json.loads(edison(mini, "admin", "cache", "stats", "--json").out)
    assert [row["simulated"] for row in found["models"]] == [2, 2]
    done = edison(mini, "costs", "--by", "model").out
    assert [line.endswith("  simulated") for line in done.splitlines()[1:4]] == [True] * 3
    assert "of it is simulated and was not paid" in done
    total = json.loads(edison(mini, "costs", "--json").out)["total"]
    assert total["simulated"] == total["calls"] == 4
    assert total["simulated_microusd"] == total["cost_microusd"] > 0


def test_clearing_spares_what_cells_use(edison: Edison, ran: Folder) -> None:
    done = edison(ran, "admin", "cache", "clear", "--yes")
    assert done.out == "would clear 0 texts (0 bytes); nothing was changed\n"
    assert texts(ran) == 4


def test_a_dry_run_changes_nothing(edison: Edison, ran: Folder) -> None:
    document = json.loads(
        edison(ran, "admin", "cache", "clear", "--all", "--dry-run", "--json").out
    )
    assert (document["cleared"], document["texts"]) == (False, 4)
    assert texts(ran) == 4


def test_nobody_to_ask_is_a_refusal(edison: Edison, ran: Folder) -> None:
    done = edison(ran, "admin", "cache", "clear", "--all")
    assert done.code == 2
    assert "check with --dry-run, then run with --yes" in done.err
    assert texts(ran) == 4


def test_yes_clears(edison: Edison, ran: Folder) -> None:
    done = edison(ran, "admin", "cache", "clear", "--all", "--yes")
    assert done.out.startswith("cleared 4 texts (")
    assert texts(ran) == 0
    assert edison(ran, "admin", "db", "check").code == 0


def test_an_export_is_a_recording(edison: Edison, ran: Folder) -> None:
    document = json.loads(edison(ran, "admin", "cache", "export", "all.jsonl", "--json").out)
    lines = ran.read("all.jsonl").splitlines()
    assert document == {
        "schema_version": 1,
        "path": "all.jsonl",
        "answers": 4,
        "size_bytes": (ran.path / "all.jsonl").stat().st_size,
    }
    assert lines[0] == '{"edison_recording": 1}'
    assert len(lines) == 5


def test_an_export_overwrites_nothing_else(edison: Edison, ran: Folder) -> None:
    before = ran.read("datasets/names.jsonl")
    assert edison(ran, "admin", "cache", "export", "datasets/names.jsonl").code == 2
    assert ran.read("datasets/names.jsonl") == before


def test_an_export_to_nowhere_is_a_clear_error(edison: Edison, ran: Folder) -> None:
    done = edison(ran, "admin", "cache", "export", "nowhere/all.jsonl")
    assert done.code == 2
    assert "cannot be written: No such file or directory" in done.err


# --- gc -------------------------------------------------------------------------------------------


def grow_old(folder: Folder) -> None:
    connection = sqlite3.connect(folder.path / ".edison/results.db")
    connection.executescript(
        "update run set created_at = '2020' || substr(created_at, 5), complete = 0;"
        "drop trigger answer_is_kept; update answer set created_at = '2020-01-01T00:00:00Z';"
    )
    connection.close()


def test_gc_tells_what_it_freed(edison: Edison, ran: Folder) -> None:
    grow_old(ran)
    assert edison(ran, "admin", "gc", "--dry-run").out.startswith("would delete 4 texts (")
    assert texts(ran) == 4
    done = edison(ran, "admin", "gc")
    assert done.out.splitlines()[0].startswith("deleted 4 texts (")
    assert "--vacuum" in done.err
    assert texts(ran) == 0
    assert edison(ran, "admin", "db", "check").code == 0


def test_gc_spares_what_is_in_production(edison: Edison, ran: Folder) -> None:
    grow_old(ran)
    text = ran.read("prompts/hello.md").replace("id: hello", "id: support-reply")
    ran.write(
        "prompts/support-reply.md", text.replace("\n---\n", "\nproduction: da045f29\n---\n", 1)
    )
    assert edison(ran, "admin", "gc").out.splitlines()[0] == "deleted 0 texts (0 bytes)"
    assert texts(ran) == 4
    ran.write("prompts/support-reply.md", "---\nid: other\n---\nHello there\n")
    refused = edison(ran, "admin", "gc")
    assert refused.code == 2
    assert "prompts/support-reply.md" in refused.err
    assert texts(ran) == 4, "who cannot tell what is in production takes nothing away"


def test_gc_is_a_document(edison: Edison, ran: Folder) -> None:
    grow_old(ran)
    document = json.loads(edison(ran, "admin", "gc", "--vacuum", "--json").out)
    assert list(document) == [
        "schema_version", "retention_days", "dry_run", "texts", "size_bytes", "reasons", "events",
        "spared_texts", "of_features", "file_bytes",
    ]  # fmt: skip
    assert (document["retention_days"], document["dry_run"], document["texts"]) == (90, False, 4)
    assert set(document["file_bytes"]) == {"before", "after"}


def test_gc_keeps_for_ever_when_told(edison: Edison, ran: Folder) -> None:
    grow_old(ran)
    ran.write("edison.yaml", "version: 1\nproject: mini\nsettings: {retention_days: 0}\n")
    assert (
        edison(ran, "admin", "gc").out == "texts are kept forever: settings.retention_days is 0\n"
    )
    assert texts(ran) == 4
