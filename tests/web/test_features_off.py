"""Pages without the features that add some: the others are there, and lead to none that is not."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from edison_ci.feature import WITHOUT, features
from tests.web.conftest import LINES, started

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily


@pytest.mark.nightly
@pytest.mark.parametrize("off", [each.name for each in features()])
def test_pages_work_without_a_feature(mini: Folder, edison: Edison, off: str) -> None:
    assert edison(mini, "run").code == 0
    for server in started(mini.path, LINES[0], "--offline", environ={WITHOUT: off}):
        (run,) = set(re.findall(r"/-/edison/run/([\w-]+)", server.get("/-/edison").text))
        for page in ("", f"/run/{run}", "/experiment/hello", "/leaderboard", "/prompts", "/audit"):
            assert server.get(f"/-/edison{page}").status_code == 200, page
        pages = [page.path for each in features() if each.name == off for page in each.pages]
        for path in pages:
            if "{" not in path:
                assert server.get(f"/-/edison{path}").status_code == 404, path


def test_pages_work_without_any_feature(mini: Folder, edison: Edison) -> None:
    assert edison(mini, "run").code == 0
    off = {WITHOUT: ",".join(each.name for each in features())}
    for server in started(mini.path, LINES[0], "--offline", environ=off):
        home = server.get("/-/edison")
        assert home.status_code == 200
        areas = re.findall(r'<li><a href="/-/edison/?(\w*)"', home.text)
        assert areas == ["", "leaderboard", "prompts", "models", "costs", "audit"]
        for area in areas:
            assert server.get(f"/-/edison/{area}").status_code == 200, area
        experiment = server.get("/-/edison/experiment/hello")
        (run,) = set(re.findall(r'href="/-/edison/run/([\w-]+)"', experiment.text))
        assert server.get(f"/-/edison/run/{run}").status_code == 200
        for gone in ("alerts", "suggestions", "datasets", "metrics", f"run/{run}/grade"):
            assert server.get(f"/-/edison/{gone}").status_code == 404, gone
        assert server.client.post(f"/-/edison/run/{run}/grade").status_code in (403, 404, 405)
