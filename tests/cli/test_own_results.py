"""A job for a proposal believes results that it made itself, and signed ones."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from edison_ci.access.own_results import sign, signature_path
from edison_ci.store.backup import copy_whole
from tests.e2e.acting import BAD, CASES, PROMPT, TRUST
from tests.features.github.commands.test_github_run import Job, job
from tests.fixed_keys import signing_keys
from tests.loopback.script import rule
from tests.opened import opened

if TYPE_CHECKING:
    from pathlib import Path

    from edison_ci.documents.signatures import KeyPair
    from tests.cli.conftest import Edison

pytestmark = pytest.mark.daily

__all__ = ["job"]


@pytest.fixture
def pair() -> KeyPair:
    return signing_keys("ours")


def with_key(job: Job, public: str) -> str:
    return TRUST.format(host=job.bench.model.url) + f"results: {{public_keys: [{public}]}}\n"


@pytest.fixture
def forged(
    job: Job, pair: KeyPair, edison: Edison, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Results in which the bad prompt of a proposal answers well; the base lists a public key."""
    bench = job.bench
    bench.repository.write(".edison/trust.yaml", with_key(job, pair.public))
    bench.base = bench.commit("trust a key")
    bench.propose_prompt(BAD)
    honest = [*bench.model.script]
    bench.model.script[:] = [rule(text="Welcome, dear friend.")]
    with monkeypatch.context() as outside:
        outside.delenv("GITHUB_ACTIONS", raising=False)
        assert edison(bench.repository, "run", "-q", "--against", "main").code == 0
    copy = tmp_path / "forged.db"
    results = bench.repository.path / ".edison/results.db"
    copy_whole(results, copy)
    for path in results.parent.glob("results.db*"):
        path.unlink()
    bench.model.script[:] = honest
    return copy


def asked(job: Job) -> int:
    """Return how many calls were made since the results were forged."""
    return job.bench.model.chats - 2 * CASES


def restore(job: Job, copy: Path, place: str, scratch: Path) -> Path:
    folder = scratch / "temp/edison" if place == "temp" else job.bench.repository.path / ".edison"
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / "results.db"
    shutil.copy(copy, target)
    if signature_path(copy).exists():
        shutil.copy(signature_path(copy), signature_path(target))
    return target


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("signed", "place"),
    [
        ("not", "temp"),
        ("not", "project"),
        ("by another", "project"),
        ("by a key of the change", "temp"),
        ("before", "temp"),
    ],
)
def test_restored_results_count_for_nothing_unless_a_key_of_the_base_signed_them(
    job: Job, forged: Path, pair: KeyPair, tmp_path: Path, signed: str, place: str
) -> None:
    other = signing_keys("theirs")
    if signed == "by a key of the change":
        changed = {".edison/trust.yaml": with_key(job, other.public)}
        job.bench.propose(**changed, **{"prompts/hello.md": PROMPT.format(text=BAD)})
    if signed in ("by another", "by a key of the change"):
        sign(forged, other.private)
    if signed == "before":  # and written to since
        sign(forged, pair.private)
        with opened(forged) as connection:
            connection.execute("update run set trigger = 'push'")
    restore(job, forged, place, tmp_path)
    done = job.pull_request()
    assert (done.code, job.outputs["verdict"]) == (1, "fail"), done.all
    assert asked(job) == 2 * CASES, "all was asked anew"


@pytest.mark.parametrize("place", ["temp", "project"])
def test_results_that_a_key_of_the_base_signed_are_reused(
    job: Job, forged: Path, pair: KeyPair, tmp_path: Path, place: str
) -> None:
    sign(forged, pair.private)
    restore(job, forged, place, tmp_path)
    done = job.pull_request()
    assert (done.code, job.outputs["verdict"]) == (0, "pass"), done.all
    assert asked(job) == 0
    assert not signature_path(tmp_path / "temp/edison/results.db").exists(), "it fits no more"


@pytest.mark.parametrize("signed", [False, True])
def test_a_replay_of_results_decides_only_if_they_are_signed(
    job: Job, forged: Path, pair: KeyPair, tmp_path: Path, signed: bool
) -> None:
    if signed:
        sign(forged, pair.private)
    restore(job, forged, "temp", tmp_path)
    done = job.pull_request("--mode", "replay")
    verdict = "pass" if signed else "inconclusive"
    assert (done.code, job.outputs["verdict"]) == (0, verdict), done.all
    assert ("which prove nothing without a signature" in job.summary) != signed


def test_commands_that_only_read_believe_no_foreign_results(
    job: Job, forged: Path, tmp_path: Path, edison: Edison
) -> None:
    restore(job, forged, "project", tmp_path)
    (tmp_path / "temp").mkdir(exist_ok=True)
    job.describe("pull_request", job.bench.pull_request())
    repository = job.bench.repository
    for command in (
        ("compare", "--gates", "latest"),
        ("status",),
        ("resume",),
        ("github", "summary"),
    ):
        done = edison(repository, *command, "--json")
        assert '"pass"' not in done.out, done.all
    assert not (repository.path / ".edison/results.db").exists()


def test_what_the_job_made_counts_in_its_later_steps(
    job: Job, tmp_path: Path, edison: Edison
) -> None:
    (tmp_path / "temp").mkdir()
    job.bench.propose_prompt("Answer in one very kind sentence.")
    job.describe("pull_request", job.bench.pull_request())
    repository = job.bench.repository
    assert edison(repository, "run", "-q", "--against", "main").code == 0
    before = job.bench.model.chats
    assert (
        json.loads(edison(repository, "compare", "--gates", "latest", "--json").out)["verdict"]
        == "pass"
    )
    assert edison(repository, "run", "-q", "--against", "main").code == 0
    assert job.bench.model.chats == before, "its own answers are reused"
    shutil.rmtree(tmp_path / "temp")  # the runner empties it before the next job
    (tmp_path / "temp").mkdir()
    assert edison(repository, "compare", "--gates", "latest").code != 0
    assert (
        "is accepted as made by this workflow run" in edison(repository, "admin", "db", "adopt").out
    )
    assert (
        json.loads(edison(repository, "compare", "--gates", "latest", "--json").out)["verdict"]
        == "pass"
    )


def test_where_keys_are_listed_a_push_starts_from_signed_results_only(
    job: Job, forged: Path, pair: KeyPair, tmp_path: Path
) -> None:
    """Else a job of the default branch would sign what somebody put into its cache."""
    restore(job, forged, "temp", tmp_path)
    pushed = {"before": "0" * 40, "after": job.bench.head, "ref": "refs/heads/main"}
    done = job("push", pushed)
    assert "are not signed: not used" in done.err
    assert asked(job) == CASES


def test_a_pair_is_made_and_a_copy_signed(
    job: Job, forged: Path, edison: Edison, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = edison(job.bench.repository, "admin", "db", "keygen", "--json")
    keys = json.loads(made.out)
    private = keys["private_key"]
    assert f"results: {{public_keys: [{keys['public_key']}]}}" in made.err
    assert private not in made.err
    assert len(edison(job.bench.repository, "admin", "db", "keygen").out.strip()) == len(private)
    monkeypatch.setenv("EDISON_SIGNING_KEY", private)
    monkeypatch.delenv("GITHUB_EVENT_NAME", raising=False)
    done = edison(job.bench.repository, "admin", "db", "sign", str(forged))
    assert done.code == 0, done.all
    assert private not in done.all
    assert signature_path(forged).exists()
    job.describe("pull_request", job.bench.pull_request())
    refused = edison(job.bench.repository, "admin", "db", "sign", str(forged))
    assert (refused.code, "cannot sign results" in refused.err) == (2, True), refused.all
    assert private not in refused.all
