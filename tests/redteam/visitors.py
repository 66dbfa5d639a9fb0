"""Attacks on pages: a session that nobody began, and limits that one uses up for all."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from typing import TYPE_CHECKING

import httpx

from tests.features.github.fake_oauth import CALLBACK_PATH, CLIENT, SECRET, FakeOAuth
from tests.redteam.attack import Attack, Variant
from tests.timing import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    from tests.redteam.attack import Change
    from tests.redteam.bench import Done, Scene

    Forgery = Callable[[list[str]], str]

HOME = "/-/edison"
BUDGET = f"{HOME}/api/v1/budget"
OWNER, VIEWER = "ada@example.com", "vi@example.com"
MEMBERS = (
    "version: 1\nproject: greetings\nmembers:\n  - {email: ada@example.com, role: owner}\n"
    "  - {github: ed, role: editor}\n  - {email: vi@example.com, role: viewer}\n"
)
PER_MINUTE = 5
FORGERIES: dict[str, Forgery] = {
    "nothing": lambda _: "",
    "empty parts": lambda parts: "~".join(["", "", *parts[2:]]),
    "only separators": lambda parts: "~" * (len(parts) - 1),
    "no signature": lambda parts: "~".join([*parts[:-1], ""]),
    "without its last part": lambda parts: "~".join(parts[:-1]),
    "one part more": lambda parts: "~".join([*parts, parts[-1]]),
    "a changed signature": lambda parts: "~".join([*parts[:-1], parts[-1][::-1]]),
    "a shorter signature": lambda parts: "~".join([*parts[:-1], parts[-1][:8]]),
    "another state": lambda parts: "~".join(["x" * len(parts[0]), *parts[1:]]),
    "another verifier": lambda parts: "~".join([parts[0], "x" * 43, *parts[2:]]),
    "another page": lambda parts: "~".join([*parts[:2], "//evil.example", *parts[3:]]),
    "another time": lambda parts: "~".join([*parts[:3], "9999999999", *parts[4:]]),
    "in another order": lambda parts: "~".join([parts[1], parts[0], *parts[2:]]),
    "huge": lambda parts: "~".join(parts) + "x" * 5_000,
}
"""Cookies that this server has not made, of one that it has made for another browser."""
STATES = ("its own", "", "x", "absent")
FLOODS = {
    "a viewer's pages": (f"{HOME}/you", True, {}),
    "a viewer's metrics": (f"{HOME}/metrics", True, {}),
    "a viewer's budget": (BUDGET, True, {}),
    "a stranger's pages": (HOME, False, {}),
    "a wrong token": (BUDGET, False, {"authorization": "Bearer edison_token_wrong"}),
    "a wrong session": (HOME, False, {"cookie": "edison_session=wrong"}),
    "another address": (HOME, False, {"x-forwarded-for": "192.0.2.7"}),
    "the owner's name": (HOME, False, {"x-user": OWNER, "from": OWNER}),
}


def people(scene: Scene) -> None:
    scene.write("edison.yaml", MEMBERS)
    scene.git("config", "user.email", OWNER)


def _environ(scene: Scene, **more: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(scene.folder), **more}


def _token(scene: Scene, name: str) -> dict[str, str]:
    done = subprocess.run(
        [*scene.site.edison, "roles", "token", name, "--json"],
        cwd=scene.path, env=_environ(scene), capture_output=True, check=True,
    )  # fmt: skip
    return {"authorization": f"Bearer {json.loads(done.stdout)['token']}"}


@contextlib.contextmanager
def served(scene: Scene, fake: FakeOAuth) -> Iterator[str]:
    """Serve the project to members; yield the address."""
    app = {
        "EDISON_GITHUB_CLIENT_ID": CLIENT,
        "EDISON_GITHUB_CLIENT_SECRET": SECRET,
        "GITHUB_SERVER_URL": fake.url,
    }
    options = ("--port", "0", "--json", "--sign-in", "--github-sign-in")
    command = [*scene.site.edison, "serve", *options, "--rate-limit", str(PER_MINUTE)]
    with subprocess.Popen(
        command, cwd=scene.path, env=_environ(scene, **app), stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        told = ""
        for line in process.stdout:
            told += line
            if line.startswith("}"):
                break
        try:
            yield f"http://127.0.0.1:{json.loads(told)['port']}"
        finally:
            process.terminate()


def _client(address: str) -> httpx.Client:
    return httpx.Client(
        base_url=address, timeout=PATIENCE_S, trust_env=False, headers={"accept": "text/html"}
    )


def _begun(address: str, fake: FakeOAuth) -> tuple[list[str], dict[str, str]]:
    """Return the parts of a cookie for a sign-in that began, and GitHub's answer to it."""
    with _client(address) as client:
        sent = client.get(f"{HOME}/sign-in/github")
        back = fake.consent(sent.headers["location"])
        return client.cookies["edison_github"].split("~"), dict(httpx.URL(back).params)


def _forged(name: str, state: str) -> Variant:
    def signed_in(scene: Scene, _: Done) -> Iterator[str]:
        with FakeOAuth("") as fake, served(scene, fake) as address:
            fake.callback = f"{address}{CALLBACK_PATH}"
            parts, answer = _begun(address, fake)
            if state != "its own":
                answer["state"] = state
            if state == "absent":
                del answer["state"]
            with _client(address) as client:
                headers = {"cookie": f"edison_github={FORGERIES[name](parts)}"}
                done = client.get(CALLBACK_PATH, params=answer, headers=headers)
            if "edison_session" in done.headers.get("set-cookie", ""):
                yield f"a forged cookie signed somebody in: {done.status_code}"
            if done.status_code >= 500:
                yield f"a forged cookie broke the page: {done.status_code}"

    return _visited(f"cookie: {name}, state: {state}", signed_in)


def _honest() -> Variant:
    """A control: what this server began signs the member in."""

    def signed_in(scene: Scene, _: Done) -> Iterator[str]:
        with FakeOAuth("") as fake, served(scene, fake) as address:
            fake.callback = f"{address}{CALLBACK_PATH}"
            parts, answer = _begun(address, fake)
            with _client(address) as client:
                headers = {"cookie": f"edison_github={'~'.join(parts)}"}
                done = client.get(CALLBACK_PATH, params=answer, headers=headers)
            if "edison_session" not in done.headers.get("set-cookie", ""):
                yield f"a control was not signed in: {done.status_code}"

    return _visited("no attack", signed_in)


def _flooded(name: str) -> Variant:
    path, member, headers = FLOODS[name]

    def refused(scene: Scene, _: Done) -> Iterator[str]:
        owner = _token(scene, OWNER)
        asked = {**headers, **(_token(scene, VIEWER) if member else {})}
        with (
            FakeOAuth("") as fake,
            served(scene, fake) as address,
            httpx.Client(base_url=address, timeout=PATIENCE_S, trust_env=False) as client,
        ):
            codes = [client.get(path, headers=asked).status_code for _ in range(3 * PER_MINUTE)]
            if 429 not in codes:
                yield f"nothing limits {name}: {sorted(set(codes))}"
            got = client.get(BUDGET, headers=owner).status_code
            if got == 429:
                yield f"{name} took the owner's requests"

    return _visited(f"flood: {name}", refused)


def _visited(name: str, then: Callable[[Scene, Done], Iterator[str]]) -> Variant:
    change: Change = people
    return Variant(name, change, people, command=("validate",), may_pass=True, then=then)


def _fixed() -> Iterator[Variant]:
    yield _honest()
    for name in FORGERIES:
        yield _forged(name, "its own")
    for state in STATES[1:]:
        yield _forged("empty parts", state)
    for name in FLOODS:
        yield _flooded(name)


def _made(random: Random) -> Variant:
    if random.random() < 0.3:
        return _flooded(random.choice(sorted(FLOODS)))
    return _forged(random.choice(sorted(FORGERIES)), random.choice(STATES))


ATTACKS = (
    Attack(
        "visitors",
        "nobody is signed in who did not begin it here, and nobody uses up what others may ask",
        _fixed,
        _made,
        share=0.5,
    ),
)
