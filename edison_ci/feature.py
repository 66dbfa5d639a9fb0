"""Features: what each brings to the core, as names that are imported when they are used.

    FEATURE = Feature(
        __name__,
        commands={"worker": Command("Team", "commands:worker", "Make calls for other machines.")},
        executors={"": "local_workers:workers_at"},
    )

`module:attribute` is a place in the package of the feature: a folder of `edison_ci.features`, or a
package that an installed distribution names by an entry point of the group `edison_ci.features`.
`EDISON_WITHOUT=cluster,site` switches features off. Nothing that protects is a feature: a proposal
may choose what is installed, and variables.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

WITHOUT = "EDISON_WITHOUT"
"""The variable with the names of the features that are switched off."""
GROUP = _BUILT_IN = "edison_ci.features"
"""The package of the built-in features, and the group of entry points of installed ones."""


HOOKS = {
    "alert_marks": "(context, points): marks on the trend of an experiment",
    "alerts": "(context, experiment): the open alerts that pages begin with",
    "api_routes": "(): operations of the HTTP interface",
    "cases_of_file": "(state, path, inputs, choose): the rows of a file as cases",
    "cell_actions": "(context, grid): what a page of the grid lets a visitor do",
    "command_ended": "(terminal, site): before a command ends that made runs or suggestions",
    "comment_data": "(site, number, author): data in the comments of this tool on a pull request",
    "duties": "(site): the `Duty`s that a server does again and again",
    "loops_of": "(connection, experiment): how many loops there were",
    "loops_waiting": "(connection, suggestion): ids of the loops that wait for a decision",
    "may_edit_prompts": "(context): whether a visitor may edit prompts here",
    "money_lease": "(project, shared, reader, owner, offline=): the `Lease` of a shared budget",
    "mail": "(project, address, title, sentences): sends an e-mail, returns why it failed, or ''",
    "notice": "(connection, site, notice): in the transaction that stores a fact",
    "own_grade": "(context, run, cell, grades): the `OwnGrade` of a visitor, or None",
    "production_sample": "(connection, experiment): the newest sample of production, or None",
    "production_trend": "(connection, experiment, drift): samples of production over time",
    "project_apps": "(app, projects, make): the server with the projects of a site",
    "projects": "(home, folder, reachable=): the `OtherProjects` of a site",
    "run_context": "(site): changes of the `RunContext` of each run",
    "runs_ended": "(terminal, project, run_ids): after the runs of a command",
    "scheduled_run": "(terminal, project, experiment, request, factory): after a scheduled run",
    "shared_cache": "(project, environ, offline=): the `CacheAccess` of a project, or None",
    "shared_limits": "(project): how much of a shared budget is used; raises UsageError",
    "site_limits": "(project, now): how much of the limits of a site is used",
    "start_workflow": "(address, inputs): starts the workflow of a repository that runs it",
    "tell_issue": "(root, message, environ): opens, updates or closes an issue; awaited",
    "wizard": "(state, target): what asks for a new project, with its draft",
}
"""Points at which the core calls features, with what they get and return."""


class Wish(NamedTuple):
    """What a feature removes from the files of its own, which the core does not know."""

    kind: str
    """`case` and `person` are to be forgotten; `before` is retention, by `settings`."""
    name: str
    """The id of the case, the text that the person is found by, or a time in UTC."""
    experiment: str | None = None
    """The only experiment of the case; None for all."""


class Command(NamedTuple):
    """A command: its section of the help, where it is defined, and its line."""

    section: str
    place: str
    line: str
    takes: str = ""
    """The kind of names that its first argument takes; see `NAMED_BY`."""


class PageEntry(NamedTuple):
    """A page of the server, by the path below its address; named groups are its parameters."""

    path: str
    place: str
    any_version: bool = False
    """Whether it can read a results file of another version."""
    open: bool = False
    """Whether it needs no sign-in; details are for members only."""


class FormEntry(NamedTuple):
    """An address to which a form is sent, by whom at least, and its name in the audit."""

    path: str
    role: str
    action: str
    place: str
    long: bool = False
    """Whether it may have whole texts, such as a prompt."""


class Area(NamedTuple):
    """An entry of the navigation."""

    key: str
    name: str
    steps: tuple[str, ...] = ()
    rank: int = 100
    """Lower ones come first; those of the core have 0, 10, 20, and so on."""


@dataclass(frozen=True, slots=True)
class Feature:
    """What a feature brings; a part that it does not have is left out."""

    package: str
    commands: Mapping[str, Command] = field(default_factory=dict)
    """By name; `admin db` is the command `db` of the group `admin`."""
    pages: tuple[PageEntry, ...] = ()
    forms: tuple[FormEntry, ...] = ()
    areas: tuple[Area, ...] = ()
    routes: str = ""
    """A function that returns other addresses of the server with their views."""
    providers: Mapping[str, str] = field(default_factory=dict)
    """Models, by the provider of their entries: opened with name, options and files, or None."""
    forges: Mapping[str, str] = field(default_factory=dict)
    """Hosts of repositories, by name: a `ReviewForge` that is opened with its address."""
    hooks: Mapping[str, str] = field(default_factory=dict)
    """What it does at the points of `HOOKS`."""
    executors: Mapping[str, str] = field(default_factory=dict)
    """What connects a run to its workers, by the word before the first colon of `--on`.

    An empty word takes every other address.
    """
    library: Mapping[str, str] = field(default_factory=dict)
    """Functions that can be imported from `edison_ci`."""
    keys: tuple[str, ...] = ()
    """Keys that nothing else reads, as `experiment.schedule`; of built-in features only."""
    sections: Mapping[str, str] = field(default_factory=dict)
    """Pydantic models of its section under `features`, by file: `edison` and `experiment`."""
    tables: tuple[str, ...] = ()
    """Tables that it owns; of built-in features only. They are always made, and looked after."""
    forget: str = ""
    """What removes texts from its files in `.edison/features/NAME`; see `forget`."""

    @property
    def name(self) -> str:
        """The name by which it is switched off."""
        return self.package.rpartition(".")[2]


def load(place: str) -> Any:
    """Import what a place names: `package.module:attribute`; raises UsageError for a package's."""
    module, _, attribute = place.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        if place.startswith(f"{_BUILT_IN}."):
            raise
        raise UsageError(
            f"{place} cannot be loaded: {error}", hint="reinstall or uninstall its package"
        ) from error


def features() -> tuple[Feature, ...]:
    """Return the features that are on: the built-in ones by name, then the installed ones."""
    off = _switched_off()
    built_in = tuple(feature for feature in _built_in() if feature.name not in off)
    return built_in + _installed(off)


def commands(group: str = "") -> dict[str, Command]:
    """Return the commands that features add to a group, or to the program."""
    added = {}
    for feature in features():
        for words, command in feature.commands.items():
            above, _, name = words.rpartition(" ")
            if above == group:
                added[name] = command._replace(place=_full(feature, command.place))
    return added


def executor(address: str) -> Any:
    """Return what connects a run to the workers at an address; raises UsageError."""
    known = {
        kind: _full(feature, place)
        for feature in features()
        for kind, place in feature.executors.items()
    }
    place = known.get(address.partition(":")[0]) or known.get("")
    if place is None:
        raise UsageError(f"nothing here has workers at {address!r}", hint=off_hint("cluster"))
    return load(place)


def pages() -> Iterator[PageEntry]:
    """Yield the pages that features add, with whole places."""
    for feature in features():
        for entry in feature.pages:
            yield entry._replace(place=_full(feature, entry.place))


def forms() -> Iterator[FormEntry]:
    """Yield the forms that features add, with whole places."""
    for feature in features():
        for entry in feature.forms:
            yield entry._replace(place=_full(feature, entry.place))


def areas() -> Iterator[Area]:
    """Yield the entries of the navigation that features add."""
    for feature in features():
        yield from feature.areas


def routes() -> Iterator[Any]:
    """Yield the functions that return other addresses of the server."""
    for feature in features():
        if feature.routes:
            yield load(_full(feature, feature.routes))


def hooks(point: str) -> Iterator[Any]:
    """Yield what the features do at a point of `HOOKS`."""
    for feature in features():
        if point in feature.hooks:
            yield load(_full(feature, feature.hooks[point]))


def call(point: str, *arguments: Any) -> None:
    """Notify every feature of an event."""
    for told in hooks(point):
        told(*arguments)


def required(point: str, name: str) -> Any:
    """Return what a feature does at a point; raises UsageError if it is switched off."""
    found = hook(point)
    if found is None:
        raise UsageError("this needs a feature that is not there", hint=off_hint(name))
    return found


def ask(point: str, *arguments: Any, default: Any = None) -> Any:
    """Return what the first feature answers at a point, or the default without one."""
    asked = hook(point)
    return default if asked is None else asked(*arguments)


def hook(point: str) -> Any:
    """Return what the first feature does at a point, or None."""
    return next(hooks(point), None)


def provider(name: str) -> Any:
    """Return what opens the models of a provider, or None."""
    return _named(name, {f.package: f.providers for f in features()})


def forge(name: str) -> Any:
    """Return the class of a host of repositories, or None."""
    return _named(name, {f.package: f.forges for f in features()})


def library(name: str) -> Any:
    """Return a function that a feature adds to the package; raises AttributeError."""
    added = _named(name, {f.package: f.library for f in features()})
    if added is None:
        off = (f"; {off_hint(f.name)}" for f in _built_in() if name in f.library)
        raise AttributeError(f"module 'edison_ci' has no attribute {name!r}{next(off, '')}")
    return added


def keys_off(file: str) -> dict[str, str]:
    """Return the keys of a kind of file that nothing reads, with the features that are off."""
    off = _switched_off()
    return {
        key.removeprefix(f"{file}."): declared.name
        for declared in (_built_in() if off else ())
        for key in declared.keys
        if declared.name in off and key.startswith(f"{file}.")
    }


def section(file: str, name: str) -> Any:
    """Return the model of the section of a feature in a kind of file; None if nothing reads it."""
    places = {f.name: _full(f, f.sections[file]) for f in features() if file in f.sections}
    return load(places[name]) if name in places else None


def own_folder(root: Path, name: str = "") -> Path:
    """Return where a feature keeps files of its own in a project; without a name, all do."""
    return root / ".edison" / "features" / name


def forget(root: Path, wish: Wish, *, remove: bool) -> dict[str, int]:
    """Return how many texts features have in files of their own, or had: also those that are off.

    Each is called as `forget(folder, wish, remove=...)` and returns its number.
    """
    counts = {}
    for declared in _installed(frozenset()):
        if declared.forget:
            folder = own_folder(root, declared.name)
            removes = load(_full(declared, declared.forget))
            try:
                counts[declared.name] = int(removes(folder, wish, remove=remove))
            except Exception as error:  # third-party code may raise any exception
                raise UsageError(
                    f"the feature {declared.name} does not forget: {type(error).__name__}: {error}",
                    hint=f"remove the texts from {folder} yourself, and uninstall it",
                ) from error
    return counts


def _named(name: str, declared: Mapping[str, Mapping[str, str]]) -> Any:
    places = (f"{package}.{places[name]}" for package, places in declared.items() if name in places)
    place = next(places, None)
    return None if place is None else load(place)


def feature_with(words: str) -> str:
    """Return the name of the feature that is switched off and has a command, or nothing."""
    off = _switched_off()
    having = (each.name for each in _built_in() if each.name in off and words in each.commands)
    return next(having, "")


def off_hint(name: str) -> str:
    """Return how to switch a feature on again."""
    return f"the feature {name} is switched off by {WITHOUT}={os.environ.get(WITHOUT, '')}"


def _full(feature: Feature, place: str) -> str:
    return f"{feature.package}.{place}"


def _switched_off() -> frozenset[str]:
    return frozenset(os.environ.get(WITHOUT, "").replace(",", " ").split())


@cache
def _built_in() -> tuple[Feature, ...]:
    """Declare every feature whose folder is there: to remove one is to delete its folder."""
    package = importlib.import_module(_BUILT_IN)
    names = sorted(entry.name for entry in os.scandir(package.__path__[0]) if entry.is_dir())
    modules = (importlib.import_module(f"{_BUILT_IN}.{name}") for name in names if name[0] != "_")
    return tuple(module.FEATURE for module in modules)


@cache
def _installed(off: frozenset[str]) -> tuple[Feature, ...]:
    """Declare the features of installed distributions; raises UsageError for a broken one."""
    if not _any_installed():
        return ()
    from edison_ci.plugins import Registry  # with what reads entry points, which takes 60 ms

    registry = Registry(GROUP, {each.name: f"{each.package}:FEATURE" for each in _built_in()})
    installed = []
    for name in registry.names():
        if name not in registry.built_in and name not in off:
            declared = registry.load(name)
            if not isinstance(declared, Feature) or declared.name != name:
                raise UsageError(
                    f"the entry point {name!r} of {GROUP} is not the Feature of a package {name}",
                    hint=f"uninstall it, or switch it off: {WITHOUT}={name}",
                )
            installed.append(declared)
    return tuple(installed)


def _any_installed() -> bool:
    """Whether a distribution mentions the group: reading all entry points takes 60 ms, this 1."""
    group = f"[{GROUP}]".encode()
    for folder in sys.path:
        with contextlib.suppress(OSError):
            entries = [e.path for e in os.scandir(folder) if e.name.endswith("-info")]
            for entry in entries:
                with contextlib.suppress(OSError):  # most have no entry points
                    if group in Path(entry, "entry_points.txt").read_bytes():
                        return True
    return False
