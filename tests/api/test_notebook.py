"""A notebook in a real kernel: runs work beside its event loop, and results show themselves."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

from tests.conftest import ROOT
from tests.timing import PATIENCE_S

if TYPE_CHECKING:
    import pytest

    from tests.conftest import Folder

CELLS = (
    "import asyncio\nloop = asyncio.get_running_loop()",
    "import edison_ci\n"
    "from edison_ci import RunOptions, SessionFactory\n"
    "project = edison_ci.load('.')\n"
    "(result,) = edison_ci.run(project, factory=SessionFactory(offline=True))\n"
    "result",
    "found = await asyncio.sleep(0, str(edison_ci.result(project).run.status))\n"
    "(found, loop is asyncio.get_running_loop())",
)


def executed(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> list[list[dict[str, Any]]]:
    """Return the outputs of each cell, by a kernel that listens on this machine only."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    monkeypatch.setenv("IPYTHONDIR", str(folder.path.parent / "ipython"))
    notebook = new_notebook(cells=[new_code_cell(each) for each in CELLS])
    client = NotebookClient(
        notebook,
        timeout=int(PATIENCE_S),
        kernel_name="python3",
        resources={"metadata": {"path": os.fspath(folder.path)}},
    )
    client.create_kernel_manager()
    assert client.km is not None
    client.km.ip = "127.0.0.1"
    client.execute()
    return [cell.outputs for cell in notebook.cells]


def test_a_result_shows_itself_in_a_notebook(mini: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = executed(mini, monkeypatch)
    assert first == []
    (shown,) = [each for each in second if each["output_type"] == "execute_result"]
    page = shown["data"]["text/html"]
    assert page.startswith("<table")
    assert "hello" in page
    assert "simulated" in page
    (last,) = third
    assert last["data"]["text/plain"] == "('COMPLETED', True)"
