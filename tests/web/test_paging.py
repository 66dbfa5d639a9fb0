"""Lists of many experiments and datasets come page by page, whole and in order."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from edison_ci import utc
from edison_ci.features.datasets.pages import datasets
from edison_ci.store.database import open_reader
from edison_ci.web.page_context import Args, Links, PageContext
from edison_ci.web.pages.home import home
from tests.planted import Planted, plant

if TYPE_CHECKING:
    from collections.abc import Callable

    from edison_ci.web.page_context import Page
    from tests.conftest import Folder

OTHERS = 44


def pages_of(folder: Folder, page: Callable[[PageContext], Page], **args: str) -> list[Any]:
    """Return the values of every page of a list, by following its links to the next."""
    found: list[Any] = []
    with closing(open_reader(folder.path / ".edison/results.db")) as connection:
        while True:
            asked = {**args, "page": str(len(found) + 1)}
            context = PageContext(
                connection=connection,
                path={},
                args=Args({name: [value] for name, value in asked.items()}),
                links=Links(str, "results", several=False),
                root=folder.path,
                now=utc.now(),
            )
            values = page(context).values
            found.append(values)
            if values["paging"].pages == len(found):
                return found
            assert f"page={len(found) + 1}" in values["again"](page=len(found) + 1)


def test_experiments_and_datasets_are_paged(mini: Folder) -> None:
    plant(mini, Planted("r1", utc.timestamp(utc.now()), {"small": [1.0, 0.5]}))
    text = mini.read("experiments/hello.yaml")
    for number in range(OTHERS):
        name = f"other-{number:02}"
        mini.write(f"experiments/{name}.yaml", text.replace("hello\n", f"{name}\n", 1))
    shown = pages_of(mini, home)
    assert [len(each["experiments"]) for each in shown] == [1, 0, 0]
    assert [len(each["unrun"]) for each in shown] == [19, 20, 5]
    names = [one.name for each in shown for one in each["unrun"]]
    assert names == [f"other-{number:02}" for number in range(OTHERS)]
    assert [len(each["unrun"]) for each in pages_of(mini, home, q="other-1")] == [10]
    assert [len(each["experiments"]) for each in pages_of(mini, home, status="not run")] == [0] * 3

    listed = pages_of(mini, datasets)
    assert [len(each["datasets"]) for each in listed] == [20, 20, 5]
    assert [one.name for each in listed for one in each["datasets"]] == ["hello", *names]
    assert listed[0]["again"](page=2) == "/-/edison/datasets?page=2"
    found = pages_of(mini, datasets, q="other-4")
    assert [len(each["datasets"]) for each in found] == [4]
