"""The attack suite: a few attacks through the real bench, and controls that it can say "broken"."""

from __future__ import annotations

import base64
import datetime as dt
import sys
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest

from edison_ci.access.sealed_keys import seal
from edison_ci.config.sealed import PRIVATE_KEY, SecretsFile
from edison_ci.feature import features
from tests.features.github.fake_state import REPOSITORY
from tests.fixed_keys import sealing_key
from tests.loopback.script import rule
from tests.redteam import gates, keys
from tests.redteam.attack import Variant
from tests.redteam.bench import KEY, TRUST, Site, others_than
from tests.redteam.campaign import Outcome, attempt, page
from tests.redteam.classes import ATTACKS
from tests.redteam.watch import Canaries, forms

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.redteam.bench import Scene

EDISON = (sys.executable, "-P", "-m", "edison_ci")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(tmp_path_factory.mktemp("site"), EDISON, Canaries.made(Random(1))) as made:
        yield made


def tried(site: Site, variant: Variant) -> Outcome:
    return attempt(site, "test", variant)


@pytest.mark.nightly
def test_attacks_are_held_off(site: Site) -> None:
    stolen = Variant("the thief's host", keys.with_models(keys.near("127.0.0.1")))
    dodged = next(each for each in gates.ATTACKS[0].fixed() if each.name == "archive")
    for variant, ended in ((stolen, "fail"), (dodged, "inconclusive")):
        found = tried(site, variant)
        assert (found.findings, found.ended) == ((), ended), found.said


@pytest.mark.nightly
def test_attacks_are_held_off_without_features(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "bare", True)
    test_attacks_are_held_off(site)


def test_every_feature_is_off_but_that_of_the_command() -> None:
    names = {each.name for each in features()}
    assert set(others_than(("run", "--yes")).split(",")) == names
    assert set(others_than(("github", "run", "--json")).split(",")) == names - {"github"}
    assert set(others_than(("admin", "bundle", "restore")).split(",")) == names - {"upkeep"}


# --- controls -------------------------------------------------------------------------------------


def _trust_the_thief(scene: Scene) -> None:
    """Let the base itself call a model of the thief with the key: then nothing stops it."""
    thief = scene.site.thief.url
    hosts = f"{scene.site.model.url}', '{thief}"
    scene.write(".edison/trust.yaml", TRUST.format(host=hosts))
    other = keys.near("127.0.0.1").replace("small:", "other:", 1)
    scene.add("models.yaml", other.replace("{port}", thief.rpartition(":")[2]))


@pytest.mark.nightly
def test_a_key_that_arrives_is_noticed(site: Site) -> None:
    change = keys.with_models(keys.near("127.0.0.1"))
    found = tried(site, Variant("x", change, _trust_the_thief))
    assert any(f"/chat/completions with {KEY}" in said for said in found.findings), found


@pytest.mark.nightly
def test_a_pass_where_a_failure_was_due_is_noticed(site: Site) -> None:
    good = Variant("x", lambda scene: scene.edit("prompts/hello.md", "kind", "short"))
    found = tried(site, replace(good, must="fail"))
    assert "a control ended with 'pass' instead of 'fail'" in found.findings
    assert "it passed: the verdict is 'pass'" in found.findings
    assert tried(site, replace(good, may_pass=True)).findings == ()


@pytest.mark.nightly
def test_money_time_and_files_are_noticed(site: Site) -> None:
    def left(scene: Scene) -> None:
        scene.write("PWNED", "")

    found = tried(
        site,
        Variant("x", lambda scene: scene.worsen(), left=left, budget_microusd=1),
    )
    assert [said.partition(" ")[0] for said in found.findings] == ["it", "code"], found
    slow = Variant("x", lambda scene: scene.worsen(), script=(rule(latency_s=30),), limit_s=1)
    assert "it did not end within 1 s" in tried(site, slow).findings


def test_a_canary_is_found_in_every_form(site: Site) -> None:
    canaries = site.canaries
    secret = canaries.values[KEY]
    for before in ("", "a", "ab", "abc"):
        said = base64.b64encode(f"{before}{secret}!".encode())
        assert canaries.seen_in(b"well: " + said) == [KEY]
    for form in forms(secret):
        assert canaries.seen_in(b"<" + form + b">") == [KEY]
        assert canaries.seen_in(b"<" + form + b">", but=KEY) == []
    assert canaries.seen_in(b"nothing") == []


def test_a_canary_in_the_output_is_noticed(site: Site) -> None:
    """The command is another one here, which says what edison never may."""
    said = base64.b64encode(f"x{site.canaries.values[KEY]}".encode()).decode()
    told = replace_command(site, said)
    assert f"the output told {KEY}" in told.findings


def replace_command(site: Site, text: str) -> Outcome:
    edison, site.edison = site.edison, ("/bin/echo",)
    try:
        return tried(site, Variant("x", lambda scene: scene.worsen(), command=(text,)))
    finally:
        site.edison = edison


def test_what_a_terminal_or_a_runner_would_obey_is_noticed(site: Site) -> None:
    assert "a terminal would obey U+001B" in replace_command(site, "\x1b[2J").findings
    found = replace_command(site, "::add-mask::PWNED").findings
    assert "a runner would obey ::add-mask::PWNED" in found


def test_an_attack_that_cannot_be_set_up_does_not_count_as_held(site: Site) -> None:
    broken = Variant("x", lambda scene: scene.edit("edison.yaml", "not there", ""))
    assert "could not be tried" in tried(site, broken).findings[0]


# --- the suite ------------------------------------------------------------------------------------


def test_the_same_seed_makes_the_same_variants() -> None:
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS)
    for attack in ATTACKS:
        names, again = (
            [variant.name for variant in attack.variants(Random("7"), 4)] for _ in range(2)
        )
        assert names == again, attack.name
        assert len(set(names)) == len(names), attack.name


def test_the_page_says_what_is_broken() -> None:
    attack = ATTACKS[0]
    held = Outcome(attack.name, "one", "fail", 1.0, 80, (), "")
    broken = replace(held, variant="two", findings=("the thief got it",))

    class Asked:
        seed, count, jobs = 1, 2, 2

    text = page([attack], [held, broken], Asked)
    assert "| 2 | fail 2 | **broken: 1** |" in text
    assert "two`: the thief got it" in text
    assert "| 1 | fail 1 | held |" in page([attack], [held], Asked)


# --- sealed keys ----------------------------------------------------------------------------------


@pytest.mark.nightly
def test_a_pull_request_neither_replaces_nor_redirects_a_sealed_key(site: Site) -> None:
    private = sealing_key("the default branch")
    host = site.github.url.removeprefix("http://").partition(":")[0]
    value = site.canaries.values[KEY]

    def boxed(text: str) -> str:
        file = SecretsFile(public_key=private.public)
        here, day = f"{host}/{REPOSITORY}".casefold(), dt.date(2026, 11, 17)
        return file.with_key(seal(KEY, text, secrets=file, repository=here, day=day)).text()

    def base(scene: Scene) -> None:
        scene.write(".edison/secrets.yaml", boxed(value))

    def replaced(scene: Scene) -> None:
        scene.write(".edison/secrets.yaml", boxed("a-key-of-the-author-1"))
        scene.worsen()

    def redirected(scene: Scene) -> None:
        keys.with_models(keys.near("127.0.0.1"))(scene)

    environ = {KEY: "", PRIVATE_KEY: private.text}
    for change in (replaced, redirected):
        found = tried(site, Variant("sealed", change, base, environ=environ))
        assert (found.findings, found.ended) == ((), "fail"), found.said
        told = {seen.headers.get("authorization") for seen in site.model.requests}
        assert told == {f"Bearer {value}"}
        assert not site.thief.requests
