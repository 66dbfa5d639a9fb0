"""What a worker checks: the versions and clocks of coordinators, and the models that they send."""

from __future__ import annotations

import time
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.access.job import key_environment
from edison_ci.access.model_keys import model_caller
from edison_ci.checks.options import parse_check
from edison_ci.config.load import load_project
from edison_ci.config.program_files import check_digest
from edison_ci.documents.files import WorkingTree
from edison_ci.errors import TrustError, UsageError
from edison_ci.features.cluster.preparation import PYTHON, Preparation, refuse_hello
from edison_ci.features.cluster.wire import Hello, read_hello, write_hello

if TYPE_CHECKING:
    from edison_ci.config.models import Model
    from tests.conftest import Folder

MODELS = """
small: {provider: sim, model: small}
judge: {provider: sim, model: judge}
vendor: {provider: openai, model: gpt-4o-mini}
own: {provider: openai_compatible, base_url: 'https://llm.example:8443/v1', model: m, price: free,
      key_env: OWN_KEY}
bare: {provider: openai_compatible, base_url: 'https://bare.example/v1', model: m, price: free}
service: {provider: http, model: s, base_url: 'https://app.example/ask', price: free, options: {
      body: {text: '{{ prompt }}'}, text: $.text}}
"""
TRUST = """
version: 1
keys: [{env: OWN_KEY, hosts: ['https://llm.example:8443']}]
hosts: ['https://named.example']
"""


@pytest.fixture
def prepared(mini: Folder, monkeypatch: pytest.MonkeyPatch) -> Preparation:
    mini.write("models.yaml", MODELS)
    mini.write(".edison/trust.yaml", TRUST)
    monkeypatch.setenv("OWN_KEY", "sk-0123456789")
    project = load_project(mini.path)
    return Preparation(project, model_caller(project), key_environment(project).has)


def sent(models: tuple[Model, ...], **given: Any) -> Hello:
    """Return a hello as it arrives."""
    hello = Hello("0.1.0", "r1", "c1", PYTHON, time.time(), models)
    return read_hello(write_hello(hello._replace(**given)))


def test_coordinators_of_other_versions_and_clocks_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = time.time()
    monkeypatch.setattr(
        "edison_ci.features.cluster.preparation.time", SimpleNamespace(time=lambda: now)
    )
    assert refuse_hello(sent(()), "0.1.0") == ""
    assert refuse_hello(sent((), version="0.2"), "0.1.0") == (
        "it has edison 0.1.0, the coordinator 0.2"
    )
    assert refuse_hello(sent((), python="3.99"), "0.1.0") == (
        f"it has Python {PYTHON}, the coordinator 3.99"
    )
    ahead = refuse_hello(sent((), now=now + 3_600), "0.1.0")
    assert ahead.startswith("its clock is 3,600 seconds behind that of the coordinator; at most 60")
    assert "ahead of" in refuse_hello(sent((), now=now - 90), "0.1.0")
    assert refuse_hello(sent((), now=now - 30), "0.1.0") == ""


def test_models_are_listed_with_their_variables_and_what_they_lack(
    prepared: Preparation, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {model.name: model for model in prepared.models()}
    assert (found["own"].variables, found["own"].why_not) == (("OWN_KEY",), "")
    assert found["vendor"].why_not == "needs OPENAI_API_KEY, not set here"
    assert found["small"] == ("small", (), "")


def test_models_of_the_checkout_are_called_as_it_has_them(prepared: Preparation) -> None:
    models = tuple(prepared.project.models.values())
    for model in sent(models).models:
        if model.name != "vendor":
            prepared.provider_for(model)
    # The variables of keys are those written here, whatever the run names.
    other = replace(prepared.project.models["own"], keys={"api_key": "HOME"})
    prepared.provider_for(other)
    with pytest.raises(UsageError, match="needs a key in OPENAI_API_KEY, which is not set"):
        prepared.provider_for(prepared.project.models["vendor"])


def test_models_of_others_are_called_where_trust_says(prepared: Preparation) -> None:
    own, bare, service = (prepared.project.models[name] for name in ("own", "bare", "service"))
    prepared.provider_for(replace(own, name="new", model="m2"))
    prepared.provider_for(replace(bare, name="new", base_url="https://named.example/v1"))
    refused = [
        (replace(own, base_url="https://evil.example/v1"), "OWN_KEY to https://evil.example:443"),
        (replace(own, model="m2", keys={"api_key": "HOME"}), "HOME to https://llm.example:8443"),
        (replace(bare, base_url="http://10.0.0.1/v1"), "does not name http://10.0.0.1:80"),
        (replace(bare, base_url=None, base_url_env="HOME"), "is not as models.yaml here has it"),
        (replace(service, base_url="https://named.example/x"), "is not as models.yaml here has it"),
    ]
    for model, why in refused:
        with pytest.raises(TrustError) as error:
            prepared.provider_for(model)
        assert why in str(error.value)


def test_code_is_the_same_if_all_files_of_its_folder_are(mini: Folder) -> None:
    tree = WorkingTree(mini.path)
    mini.write("checks/tone.py", "def check(**_): return 1\n")
    checks = ({"python": "checks/tone.py:check"}, {"command": ["python3", "checks/tone.py"]})
    before = [check_digest(parse_check(check), tree) for check in checks]
    assert before[0] and before[0] == before[1], "what is called is compared by itself"
    mini.write("checks/more/words.py", "WORDS = 1\n")
    assert check_digest(parse_check(checks[0]), tree) not in before
    before = [check_digest(parse_check(checks[0]), tree)]
    for path in ("checks/.rules", "checks/node_modules/left/index.js"):
        mini.write(path, "x")
        before.append(check_digest(parse_check(checks[0]), tree))
    assert len({*before}) == 3, "hidden files and packages count"
    mini.write("checks/__pycache__/tone.pyc", "x")
    assert check_digest(parse_check(checks[0]), tree) == before[-1]
    # Nothing shows that these are the same elsewhere.
    assert check_digest(parse_check({"command": ["python3", "-m", "checks.tone"]}), tree) == ""
    for number in range(1_000):
        mini.write(f"checks/more/{number}.txt", "")
    assert check_digest(parse_check(checks[0]), tree) == ""
