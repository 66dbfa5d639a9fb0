"""Built-in names, names of installed packages, and what happens when they collide."""

from __future__ import annotations

import importlib.metadata
from abc import ABC, abstractmethod
from importlib.metadata import EntryPoint

import pytest

from edison_ci.errors import ExitCode, UsageError
from edison_ci.plugins import Registry
from tests.offered import offer

GROUP = "edison_ci.things"
BUILT_IN = {"decoder": "json:JSONDecoder"}


def install(monkeypatch: pytest.MonkeyPatch, **points: str) -> list[str]:
    """Pretend that packages with these entry points are installed; return the groups asked for."""
    return install_all(monkeypatch, list(points.items()))


def install_all(monkeypatch: pytest.MonkeyPatch, points: list[tuple[str, str]]) -> list[str]:
    asked: list[str] = []

    def entry_points(*, group: str) -> list[EntryPoint]:
        asked.append(group)
        return [EntryPoint(name, value, group) for name, value in points]

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    return asked


def test_a_built_in_name_is_loaded_without_looking_at_packages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = install(monkeypatch)
    assert Registry(GROUP, BUILT_IN).load("decoder").__name__ == "JSONDecoder"
    assert asked == []


def test_an_installed_name_is_found_by_its_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = install(monkeypatch, encoder="json:JSONEncoder")
    registry = Registry(GROUP, BUILT_IN)
    assert registry.load("encoder").__name__ == "JSONEncoder"
    assert registry.names() == ["decoder", "encoder"]
    assert asked == [GROUP], "packages are searched once"


def test_an_unknown_name_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    assert Registry(GROUP, BUILT_IN).load("nothing") is None


def test_a_plugin_may_not_take_a_built_in_name(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, decoder="evil:Decoder")
    with pytest.raises(UsageError, match="evil:Decoder has the name 'decoder', which is built in"):
        Registry(GROUP, BUILT_IN).names()


def test_two_plugins_may_not_share_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    install_all(monkeypatch, [("thing", "one:Thing"), ("thing", "two:Thing")])
    with pytest.raises(UsageError) as caught:
        Registry(GROUP).load("thing")
    assert caught.value.exit_code is ExitCode.INVALID
    assert caught.value.hint == "uninstall one of one:Thing and two:Thing"


@pytest.mark.parametrize("target", ["no_such_module:Thing", "json:NoSuchThing"])
def test_a_plugin_that_cannot_be_loaded_is_named(
    monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    install(monkeypatch, thing=target)
    with pytest.raises(UsageError, match=f"the plugin {target} for 'thing' cannot be"):
        Registry(GROUP).load("thing")


class Contract(ABC):
    @abstractmethod
    def work(self) -> None: ...


class Whole(Contract):
    def work(self) -> None:
        """Do nothing."""


class Half(Contract):
    pass


def test_a_class_that_keeps_its_contract_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, registry := Registry(GROUP), whole=Whole)
    assert registry.load_class("whole", Contract) is Whole
    assert registry.load_class("nothing", Contract) is None


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (dict, f"package:dict for 'thing' is not a subclass of {__name__}.Contract"),
        (Half, "package:Half for 'thing' does not define work"),
    ],
)
def test_a_class_that_breaks_its_contract_is_refused(
    monkeypatch: pytest.MonkeyPatch, kind: type, said: str
) -> None:
    offer(monkeypatch, registry := Registry(GROUP), thing=kind)
    with pytest.raises(UsageError, match=said) as caught:
        registry.load_class("thing", Contract)
    assert caught.value.exit_code is ExitCode.INVALID


def test_the_package_of_a_name_is_known_with_its_version() -> None:
    registry = Registry("pytest11", {"decoder": "json:JSONDecoder"})
    version = importlib.metadata.version("pytest-asyncio")
    assert registry.package("asyncio") == f"pytest-asyncio {version}"
    assert registry.package("decoder") is None
    assert registry.package("nothing") is None
