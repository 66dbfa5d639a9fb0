"""Files of other tools become cases of a dataset, and say what they leave out."""

from __future__ import annotations

import json
import struct
import zipfile
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.documents.files import WorkingTree
from edison_ci.errors import ConfigError
from edison_ci.features.importing import tables
from edison_ci.features.importing.tables import (
    CaseShape,
    ImportRules,
    guessed_names,
    imported_cases,
    read_table,
)

if TYPE_CHECKING:
    from pathlib import Path

    from edison_ci.features.importing.tables import Table

SHAPE = CaseShape({"question": "string"}, ("question",))


def table_of(folder: Path, name: str, content: Any, form: str | None = None) -> Table:
    data = content if isinstance(content, bytes | str) else json.dumps(content)
    (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())
    return read_table(WorkingTree(folder), name, chosen=form)


def cases_of(table: Table) -> list[dict[str, Any]]:
    names = guessed_names(table, SHAPE, {})
    return [dict(row) for row in imported_cases(table, ImportRules(names), SHAPE, ()).rows]


def result(test: int, provider: str, **about: Any) -> dict[str, Any]:
    """Return a result in the form of promptfoo."""
    variables = about.pop("vars", {"question": "Where is it?"})
    return {
        "testIdx": test, "promptIdx": 0, "provider": {"id": provider}, "vars": variables,
        "response": {"output": "Here."}, "success": True, "score": 1, "namedScores": {},
        "testCase": {"vars": variables, **about},
    }  # fmt: skip


TESTS: list[dict[str, Any]] = [
    {
        "description": "where",
        "metadata": {"tags": ["parcel"], "area": "ship", "_promptfooFileMetadata": {}},
        "assert": [
            {"type": "is-json"},
            {"type": "icontains", "value": "here"},
            {"type": "equals", "value": "Here."},
        ],
    },
    {"vars": {"question": "When?", "id": 7}, "description": "When, exactly\u2026?"},
]
RESULTS = [
    result(number, provider, **about)
    for provider in ("echo", "other")
    for number, about in enumerate(TESTS)
]
FROM_RESULTS = [
    {"id": "where", "input": {"question": "Where is it?"}, "expected": "Here.",
     "tags": ["parcel"], "metadata": {"area": "ship"}},
    {"input": {"question": "When?"}, "metadata": {"name": "When, exactly\u2026?"}},
]  # fmt: skip


@pytest.mark.parametrize("name", ["results.json", "results.jsonl", "results.yaml"])
def test_results_of_promptfoo_are_its_tests_once(tmp_path: Path, name: str) -> None:
    whole = {"evalId": "eval-1", "results": {"version": 3, "results": RESULTS}, "config": {}}
    lines = "\n".join(map(json.dumps, RESULTS))
    table = table_of(tmp_path, name, lines if name.endswith("l") and "json" in name else whole)
    first, second = cases_of(table)
    assert first == FROM_RESULTS[0]
    assert {key: second[key] for key in second if key != "id"} == FROM_RESULTS[1]
    assert table.format == "promptfoo"
    assert guessed_names(table, SHAPE, {})["input.id"] == "", "no variable becomes the id"
    assert table.notes == [
        "4 results of 2 tests; answers and scores are not imported",
        "assertions that are no expected output: is-json (1), icontains (1); "
        "for checks of them: edison import promptfoo FILE",
    ]


GOLDEN = {
    "input": "Where is it?", "actual_output": "x", "expected_output": "Here.",
    "retrieval_context": ["a"], "context": ["b", "c"], "name": "where", "comments": None,
    "source_file": "faq.md", "tools_called": None, "expected_tools": [{"name": "find"}],
    "additional_metadata": {"area": "ship"}, "custom_column_key_values": {"tone": "kind"},
    "new_field": 1,
}  # fmt: skip


def test_goldens_of_deepeval_are_the_same_in_each_format(tmp_path: Path) -> None:
    joined = {**GOLDEN, "retrieval_context": "a", "context": "b|c"}
    cells = {key: json.dumps(value) if isinstance(value, list | dict) else str(value or "")
             for key, value in joined.items()}  # fmt: skip
    line = ",".join('"' + cell.replace('"', '""') + '"' for cell in cells.values())
    for name, content in {
        "goldens.json": [GOLDEN],
        "goldens.jsonl": json.dumps(joined),
        "goldens.csv": f"{','.join(cells)}\n{line}\n",
    }.items():
        table = table_of(tmp_path, name, content)
        assert cases_of(table) == [
            {"id": "where", "input": {"question": "Where is it?"}, "expected": "Here.",
             "metadata": {"context": ["b", "c"], "retrieval_context": ["a"],
                          "expected_tools": [{"name": "find"}], "source_file": "faq.md",
                          "area": "ship", "tone": "kind"}}
        ], name  # fmt: skip
        assert table.notes == [
            "answers, called tools and costs of 1 golden are not imported",
            "unknown fields are not imported: new_field (1)",
        ]


def sample(number: Any, epoch: int, **fields: Any) -> dict[str, Any]:
    return {"id": number, "epoch": epoch, "target": "", "messages": [], "scores": {}, **fields}


SAMPLES = [
    sample("late", 1, input="Where is it?", target="Here.", metadata={"area": "ship"}),
    sample(2, 1, choices=["a", "b"], target=["a", "b"], sandbox={"type": "docker"}, input=[
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": [{"type": "text", "text": "First?"}, {"type": "image"}]},
        {"role": "assistant", "content": "Yes."},
        {"role": "user", "content": "Then?"},
    ]),
    sample("late", 2, input="Where is it?", target="Here."),
]  # fmt: skip
FROM_SAMPLES = [
    {"id": "late", "input": {"question": "Where is it?"}, "expected": "Here.",
     "metadata": {"area": "ship"}},
    {"id": "2", "input": {"question": "Then?"}, "expected": ["a", "b"], "metadata": {
        "system": "Be short.", "choices": ["a", "b"], "history": [
            {"role": "user", "content": "First?\n[image]"},
            {"role": "assistant", "content": "Yes."}]}},
]  # fmt: skip


def zipped(folder: Path, *, method: int = zipfile.ZIP_DEFLATED) -> Path:
    path = folder / "log.eval"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("header.json", "{}")
        for each in reversed(SAMPLES):
            archive.writestr(f"samples/{each['id']}_epoch_{each['epoch']}.json", json.dumps(each))
    return path


def test_logs_of_inspect_are_their_samples_once(tmp_path: Path) -> None:
    log = {"version": 2, "status": "success", "eval": {"task": "demo"}, "samples": SAMPLES,
           "results": {"value": float("nan")}}  # fmt: skip
    table = table_of(tmp_path, "log.json", log)
    assert cases_of(table) == FROM_SAMPLES, "NaN stands in logs where a score is missing"
    assert table.notes == [
        "3 samples of 2 cases; answers, scores and events are not imported",
        "the surroundings of samples are not imported: sandbox (1)",
    ]
    zipped(tmp_path)
    read = read_table(WorkingTree(tmp_path), "log.eval")
    assert sorted(cases_of(read), key=lambda case: case["id"], reverse=True) == FROM_SAMPLES


def test_a_sample_packed_as_inspect_does_it_is_read(tmp_path: Path) -> None:
    plain = json.dumps(sample("late", 1, input="Where?")).encode()
    frame = b"\x28\xb5\x2f\xfd\x20" + bytes([len(plain)])
    frame += (len(plain) << 3 | 1).to_bytes(3, "little") + plain
    path = tmp_path / "log.eval"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("samples/late_epoch_1.json", frame)
    data = bytearray(path.read_bytes())
    listing = data.index(b"PK\1\2")
    for start, method_at, crc_at in ((0, 8, 14), (listing, 10, 16)):
        struct.pack_into("<H", data, start + method_at, 93)
        struct.pack_into("<LLL", data, start + crc_at, zlib.crc32(plain), len(frame), len(plain))
    path.write_bytes(data)
    assert cases_of(read_table(WorkingTree(tmp_path), "log.eval")) == [
        {"id": "late", "input": {"question": "Where?"}}
    ]
    struct.pack_into("<L", data, listing + 16, 1)
    path.write_bytes(data)
    with pytest.raises(ConfigError, match="ZIP file is damaged"):
        read_table(WorkingTree(tmp_path), "log.eval")


VALLY = """\
name: parcels
config: {runs: 3}
tags: {tier: smoke}
stimuli:
  - name: where
    prompt: Where is it?
    tags: {area: ship}
    rubric: [It is kind.]
    graders:
      - {type: output-contains, config: {substring: Here}}
      - {type: output-matches, config: {pattern: "h.re"}}
    constraints: {max_turns: 3}
  - {name: talk, turns: [One?, Two?], graders: [{type: prompt}]}
"""


def test_stimuli_of_vally_are_cases(tmp_path: Path) -> None:
    table = table_of(tmp_path, "eval.yaml", VALLY)
    assert cases_of(table) == [
        {"id": "where", "input": {"question": "Where is it?"}, "expected": "Here",
         "tags": ["tier:smoke", "area:ship"], "metadata": {"rubric": ["It is kind."]}}
    ]  # fmt: skip
    assert table.notes == [
        "keys of the file that are not imported: config",
        "graders are not imported: output-matches (1); write them as checks",
        "fields that are not imported: constraints (1)",
        "1 case with several turns left out: a case has one input",
    ]
    assert table.rows[0].where.line == 5


def test_items_of_langfuse_are_cases(tmp_path: Path) -> None:
    table = table_of(
        tmp_path,
        "items.csv",
        '"id","input","expectedOutput","metadata","sourceTraceId","status","createdAt"\n'
        '"a","Where, now?","Here.","{""area"": ""ship""}","t1","ACTIVE","2026-01-01"\n'
        '"b","{""question"": ""When?""}","{""day"": 5}","","","ACTIVE","2026-01-01"\n'
        '"c","[{""role"":""user"",""content"":""Who?""}]",'
        '"{""role"":""assistant"",""content"":""Ada""}","","","ACTIVE","2026-01-01"\n'
        '"d","Old","","","","ARCHIVED","2026-01-01"\n',
    )
    names = guessed_names(table, SHAPE, {})
    assert (names["question"], names["input"]) == ("question", ""), "two columns, one input"
    assert [row.fields for row in table.rows] == [
        {"input": "Where, now?", "id": "a", "expected": "Here.", "metadata.area": "ship",
         "metadata.sourceTraceId": "t1"},
        {"question": "When?", "id": "b", "expected": {"day": 5}},
        {"input": "Who?", "id": "c", "expected": "Ada"},
    ]  # fmt: skip
    assert table.notes == [
        "1 archived item left out",
        "fields that are not imported: status (3), createdAt (3)",
    ]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("examples.csv", "input_question,output_answer,split\nWhere?,Here.,base\n"),
        ("examples.csv", "inputs.question,outputs.answer,split\nWhere?,Here.,base\n"),
        (
            "examples.csv",
            'inputs,outputs,split\n"{""question"": ""Where?""}","{""answer"": ""Here.""}",base\n',
        ),
        (
            "examples.json",
            [{"inputs": {"messages": [{"role": "user", "content": "Where?"}]},
              "outputs": {"message": {"role": "assistant", "content": "Here."}},
              "splits": ["base"]}],
        ),
    ],
)  # fmt: skip
def test_examples_of_langsmith_are_cases(tmp_path: Path, name: str, content: Any) -> None:
    table = table_of(tmp_path, name, content)
    assert table.format == "langsmith"
    (case,) = cases_of(table)
    del case["id"]
    assert case == {
        "input": {"question": "Where?"}, "expected": "Here.", "tags": ["split:base"]
    }  # fmt: skip


def test_a_format_can_be_named_and_a_table_stays_a_table(tmp_path: Path) -> None:
    content = "input_question,output_answer\nWhere?,Here.\n"
    table = table_of(tmp_path, "examples.csv", content, "table")
    assert (table.format, table.columns) == ("table", ["input_question", "output_answer"])
    other = table_of(tmp_path, "mine.csv", "input_question,output_answer,note\nWhere?,Here.,x\n")
    assert other.format == "table", "a column of no known export"
    with pytest.raises(ConfigError, match="not a file of Inspect"):
        table_of(tmp_path, "examples.csv", content, "inspect")


def test_hostile_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = WorkingTree(tmp_path)
    path = zipped(tmp_path)
    whole = path.read_bytes()
    monkeypatch.setattr(tables, "SAMPLE_BYTES", 50)
    with pytest.raises(ConfigError, match="unpacks to over 50 bytes"):
        read_table(tree, "log.eval")
    monkeypatch.setattr(tables, "SAMPLE_BYTES", 10_000)
    monkeypatch.setattr(tables, "ALL_SAMPLE_BYTES", 200)
    with pytest.raises(ConfigError, match="unpacks to over 200 bytes"):
        read_table(tree, "log.eval")
    monkeypatch.setattr(tables, "MOST_MEMBERS", 2)
    with pytest.raises(ConfigError, match="more than 2 files"):
        read_table(tree, "log.eval")
    for data, said in ((whole[:-30], "not a ZIP file"), (b"", "not a ZIP file")):
        path.write_bytes(data)
        with pytest.raises(ConfigError, match=said):
            read_table(tree, "log.eval")
    deep: Any = "x"
    for _ in range(60):
        deep = [deep]
    log = {"version": 2, "status": "success", "eval": {}}
    for content, said in (
        ({**log, "samples": [sample("a", 1, input=deep)]}, "nested deeper"),
        ({**log, "samples": [3]}, "entry 1 is not an object"),
        ({**log, "samples": []}, "there are no cases"),
        ({**log, "samples": [sample("a", 1, input="x" * 1_100_000)]}, "case 1 is longer than"),
        ({**log, "samples": [sample("a", 1)]}, "has no input"),
        ([{"question": "x", "n": float("nan")}], "NaN is not a JSON number"),
        ({"results": {"results": [{"vars": 3}]}}, "a result has no vars"),
    ):
        with pytest.raises(ConfigError, match=said):
            table_of(tmp_path, "hostile.json", content)
    laughs = "stimuli: &z [1]\n" + "".join(
        f"k{n}: &k{n} [{', '.join([f'*k{n - 1}' if n else '*z'] * 9)}]\n" for n in range(9)
    )
    with pytest.raises(ConfigError):
        table_of(tmp_path, "eval.yaml", laughs)
