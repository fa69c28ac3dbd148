"""Folders of files as sources: every row once, every malformed record kept with its place, files cleaned up after."""

from __future__ import annotations

import csv
import gzip
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch import sources
from anabranch.core import crash
from anabranch.core.events import Event
from anabranch.core.events_data import FilesKept
from anabranch.errors import AnabranchError, UserCodeError
from anabranch.load.project import read_project

pytestmark = pytest.mark.spark

PIPELINE = """
from anabranch import pipelines as dp, sources
from pyspark.sql import functions as F

HERE = {here!r}

@dp.temporary_view
@sources.dead_letters
def orders():
    return sources.files(HERE + "/orders", schema="id BIGINT, qty INT", dead_letters=True, max_files=3,
                         clean="archive", archive=HERE + "/archive").select("*", "_metadata.file_name")

@dp.table
def all_orders():
    return spark.readStream.table("orders")

@dp.table
def large_orders():
    return spark.readStream.table("orders").where("qty > 5")

@dp.table
@sources.dead_letters
def people():
    return sources.files(HERE + "/people", "csv", schema="id INT, name STRING", dead_letters=True,
                         options={{"header": True}})

@dp.table
@sources.dead_letters
def readings():
    return sources.files(HERE + "/readings", envelope="data", dead_letters=True,
                         schema="id INT, v DOUBLE, _meta STRUCT<station: STRING>")
{more}
"""

#: Bytes of files of JSON lines, by name.
ORDERS = {
    "a b.json": b'{"id":1,"qty":2}\r\n\r\n{"id":"x","qty":3}\r\nnope\r\n{"id":4,"qty":9}\r\nnope\r\nnope',
    "\u00fc 100%.json": b'\xef\xbb\xbfnope\n{"id":10,"qty":6}\n{"id":11,"qty":1.5}\n',
    "packed.json.gz": gzip.compress(b'{"id":20,"qty":7}\n{"id":21\n\n[1]\n{"id":22}\n'),
    "deep/er/c.json": b'{"id":30,"qty":1}\r{"id":31}\rbad\r',
    "empty.json": b"",
    "not text.json": b'\xff\xfe\xff\n{"id":40,"qty":40}\n',
    "writing.json.tmp": b'{"id":50,"qty":50}\n{"id":5',
    ".hidden.json": b'{"id":60,"qty":60}\n',
}
PEOPLE = {"p.csv": b'id,name\n1,ann\n2\n3,bob,x\nid,name\n\nx4,carl\n"5","d, e"\n', "q.csv": b"id,name\n6,fay"}
READINGS = {
    "a.json": b'{"_meta": {"station": "n"},\n "data": [{"id": 1, "v": 1.5}, {"id": "x"}, null, 7, {"id": 2}]}',
    "b.json": b'{"_meta": {"station": "s"},\n "data": [{"id": 3},}',
    "c.json": b'{"_meta": {"station": "e"}, "data": []}',
    "d.json": b'{"id": 9}',
    "e.json": b'{"_meta": 5, "data": [{"id": 10}]}',
}


def put(folder: Path, files: dict[str, bytes], age: int = 0) -> None:
    for number, (name, content) in enumerate(files.items()):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        at = 1_700_000_000 + number - age
        os.utime(path, (at, at))


class Lake:
    """A project over the folders, and what came of it."""

    def __init__(self, here: Path) -> None:
        self.here, self.events = here, list[Event]()
        (here / "transformations").mkdir()
        (here / "anabranch.yml").write_text("name: files\n")
        self.write("")

    def write(self, more: str) -> None:
        (self.here / "transformations" / "p.py").write_text(PIPELINE.format(here=str(self.here), more=more))

    def run(self) -> None:
        from anabranch.engine.run import run

        run(read_project(self.here), once=True, listener=self.events.append)

    def rows(self, table: str, *columns: str) -> list[Any]:
        from anabranch import read

        found = read.cut(self.here).arrow(table).to_pylist()
        return sorted((tuple(row[c] for c in columns) for row in found), key=repr)

    def orders(self, table: str) -> list[Any]:
        return sorted(((*row, unquote(name)) for *row, name in self.rows(table, "id", "qty", "file_name")), key=repr)

    def letters(self, table: str) -> list[dict[str, Any]]:
        found = [json.loads(payload) for (payload,) in self.rows(f"{table}_quarantine", "payload")]
        return sorted(found, key=lambda each: (each["file"], each["line"] or 0, each["element"] or 0))


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Lake:
    here = tmp_path_factory.mktemp("files")
    put(here / "orders", ORDERS)
    put(here / "people", PEOPLE)
    put(here / "readings", READINGS)
    made = Lake(here)
    made.run()
    return made


def lines_of(content: bytes) -> list[tuple[int, int, bytes]]:
    """Number, byte and text of each line, by a plain reading."""
    found, offset = [], 0
    for number, line in enumerate(content.splitlines(keepends=True), 1):
        bare = line.rstrip(b"\r\n")
        found.append((number, offset, bare[3:] if number == 1 and bare.startswith(b"\xef\xbb\xbf") else bare))
        offset += len(line)
    return found


def order_in(line: bytes) -> tuple[int, int | None] | None:
    """The row of a good line; None for one that is none."""
    try:
        value = json.loads(line)
    except ValueError:
        return None
    fits = isinstance(value, dict) and all(isinstance(value.get(k), int | None) for k in ("id", "qty"))
    return (value.get("id"), value.get("qty")) if fits else None


def expected_orders() -> tuple[list[Any], list[Any]]:
    good, bad = [], []
    for name, content in ORDERS.items():
        if name in ("writing.json.tmp", ".hidden.json"):
            continue
        plain = gzip.decompress(content) if name.endswith(".gz") else content
        for number, offset, line in lines_of(plain):
            if row := order_in(line):
                good.append((*row, os.path.basename(name)))
            elif line:
                bad.append((os.path.basename(name), number, offset, line.decode("utf-8", "replace")))
    return sorted(good, key=repr), sorted(bad)


def test_rows_and_dead_letters_are_those_of_a_plain_reading(lake: Lake) -> None:
    good, bad = expected_orders()
    assert lake.orders("all_orders") == good
    assert lake.rows("large_orders", "id") == sorted(((row[0],) for row in good if (row[1] or 0) > 5), key=repr)
    letters = lake.letters("orders")
    found = [(os.path.basename(e["file"]), e["line"], e["offset"], e["record"]) for e in letters]
    assert sorted(found) == bad
    reasons = {each["record"]: each["reason"] for each in letters}
    assert reasons['{"id":"x","qty":3}'] == "column id: 'x' is not a bigint"
    assert reasons['{"id":11,"qty":1.5}'] == "column qty: 1.5 is not an int"
    assert reasons["nope"].startswith("not JSON: Expecting value at line 1, column 1")
    assert reasons["[1]"] == "1 is not an object"


def test_csv_rows_with_a_header(lake: Lake) -> None:
    plain = [row for content in PEOPLE.values() for row in csv.reader(content.decode().splitlines())]
    good = [(int(row[0]), row[1]) for row in plain if len(row) == 2 and row[0].isdigit()]
    assert lake.rows("people", "id", "name") == sorted(good, key=repr)
    assert [(e["line"], e["offset"], e["record"], e["reason"]) for e in lake.letters("people")] == [
        (3, 14, "2", "1 column instead of 2"),
        (4, 16, "3,bob,x", "3 columns instead of 2"),
        (5, 24, "id,name", "column id: 'id' is not an int"),
        (7, 33, "x4,carl", "column id: 'x4' is not an int"),
    ]


def test_envelopes_lose_one_record_or_one_document_at_a_time(lake: Lake) -> None:
    assert lake.rows("readings", "id", "v", "_meta") == [
        (1, 1.5, {"station": "n"}),
        (2, None, {"station": "n"}),
    ]
    found = [
        (os.path.basename(e["file"]), e["line"], e["element"], e["record"], e["reason"])
        for e in lake.letters("readings")
    ]
    assert found == [
        ("a.json", None, 1, '{"id": "x"}', "column id: 'x' is not an int"),
        ("a.json", None, 2, None, "null, not an object"),
        ("a.json", None, 3, "7", "7 is not an object"),
        ("b.json", 2, None, READINGS["b.json"].decode(), "not JSON: Expecting value at line 2, column 21"),
        ("d.json", None, None, '{"id": 9}', 'a document without an array "data"'),
        ("e.json", None, None, READINGS["e.json"].decode(), "column _meta: 5 is not an object"),
    ]


def test_no_output_has_the_column_of_dead_letters(lake: Lake) -> None:
    from anabranch import read

    cut = read.cut(lake.here)
    assert cut.arrow("people").column_names == ["id", "name"]
    assert cut.arrow("all_orders").column_names == ["id", "qty", "file_name"]
    assert set(sources.DEAD_LETTER.split()[::2]) == set(lake.letters("orders")[0])


def test_it_is_one_pass(lake: Lake, spark: Any) -> None:
    from anabranch.engine.catalyst_nodes import analyzed
    from anabranch.engine.planning import plan_with_spark
    from anabranch.engine.program import make_program

    planned = plan_with_spark(read_project(lake.here), spark, {}, pin=False)
    programs = [make_program(part, planned.frames) for part in planned.plan.channels]
    assert {flow: how for program in programs for flow, how in program.how.items()} == {
        "orders": "native",
        "all_orders": "native",
        "large_orders": "native",
        "people": "native",
        "readings": "fused, spark: parses JSON that is computed",
    }
    assert sorted(scan for program in programs for scan in program.sources) == [
        f"csv path={lake.here}/people",
        f"json path={lake.here}/orders",
        f"json path={lake.here}/readings",
    ]
    optimizer = spark._jsparkSession.sessionState().optimizer()
    parsed = [optimizer.execute(analyzed(program.frame)).toString() for program in programs]
    # Records are parsed by the scan, and those of an envelope once more, each by itself.
    assert sorted(text.count("from_json(") for text in parsed) == [0, 0, 1]


def test_files_are_archived_when_they_are_published_and_found_there(lake: Lake) -> None:
    left = {str(p.relative_to(lake.here / "orders")) for p in (lake.here / "orders").rglob("*") if p.is_file()}
    read = {name for name in ORDERS if name not in ("writing.json.tmp", ".hidden.json")}
    assert left == set(ORDERS) - read
    assert all((lake.here / "archive" / name).read_bytes() == ORDERS[name] for name in read)
    # An output that joins now gets its past from the archive; a late file, years older, is read.
    put(lake.here / "orders", {"late.json": b'{"id":70,"qty":70}\n'}, age=400_000_000)
    put(lake.here / "orders", {"a b.json": b'{"id":99}\n'})  # a name that was read before: Spark never looks again
    lake.write('@dp.table\ndef again():\n    return spark.readStream.table("orders")\n')
    lake.events.clear()
    lake.run()
    good = sorted([*expected_orders()[0], (70, 70, "late.json")], key=repr)
    assert lake.orders("again") == lake.orders("all_orders") == good
    assert len(lake.letters("orders")) == len(expected_orders()[1])
    kept = [event for event in lake.events if isinstance(event, FilesKept)]
    assert [event.files for event in kept] == [(str(lake.here / "orders" / "a b.json"),)]


STATE = """
from anabranch import pipelines as dp, sources

@dp.table
def once():
    return sources.files({here!r} + "/state", "json", schema="id INT", clean="delete").dropDuplicates(["id"])
"""


def test_killed_before_spark_has_noted_it_state_is_not_computed_without_its_files(tmp_path: Path, spark: Any) -> None:
    lake = Lake(tmp_path)
    (tmp_path / "transformations" / "p.py").write_text(STATE.format(here=str(tmp_path)))
    with pytest.MonkeyPatch.context() as killed:
        killed.setattr(crash, "_hits", Counter())
        killed.setenv(crash.VARIABLE, "published:raise")
        put(tmp_path / "state", {"a.json": b'{"id":1}\n{"id":2}\n'})
        with pytest.raises(UserCodeError, match="crash point published"):
            lake.run()
    assert lake.rows("once", "id") == [(1,), (2,)]
    assert (tmp_path / "state" / "a.json").exists()
    put(tmp_path / "state", {"b.json": b'{"id":2}\n{"id":3}\n'})
    lake.run()
    assert lake.rows("once", "id") == [(1,), (2,), (3,)]
    assert not list((tmp_path / "state").glob("*.json"))


KINDS = """
from anabranch import pipelines as dp, sources

HERE = {here!r}

@dp.table
def strict():
    return sources.files(HERE + "/strict", "json", schema="id INT")

@dp.table
def parquet():
    return sources.files(HERE + "/parquet", "parquet")

@dp.table
def texts():
    return sources.files(HERE + "/text", "text")

@dp.table
def blobs():
    return sources.files(HERE + "/blobs", "binary").select("length", "content")

@dp.table
def avro():
    return sources.files(HERE + "/avro", "avro")

@dp.table
def guessed():
    return sources.files(HERE + "/guessed", envelope="data", options={{"multiLine": False}})
"""


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Lake:
    here = tmp_path_factory.mktemp("kinds")
    made = Lake(here)
    (here / "transformations" / "p.py").write_text(KINDS.format(here=str(here)))
    rows = pa.Table.from_pylist([{"id": 1, "s": "a"}, {"id": 2, "s": None}])
    put(here / "strict", {"good.json": b'{"id":1}\n'})
    (here / "parquet").mkdir()
    pq.write_table(rows, here / "parquet" / "x.parquet")
    put(here / "text", {"a.txt": b"one\ntwo\r\n"})
    put(here / "blobs", {"b.bin": b"\x00\x01"})
    (here / "avro").mkdir()
    with (here / "avro" / "x.avro").open("wb") as out:
        fastavro.writer(out, AVRO, [{"id": 1}, {"id": 2}])
    two = b'{"_meta": {"n": 1}, "data": [{"id": 1}]}\n{"_meta": {"n": 2}, "data": [{"id": 2}]}\n'
    put(here / "guessed", {"a.json": two})
    made.run()
    return made


AVRO = {"type": "record", "name": "row", "fields": [{"name": "id", "type": "long"}]}


def test_every_format_with_its_schema_found_once(kinds: Lake) -> None:
    assert kinds.rows("parquet", "id", "s") == [(1, "a"), (2, None)]
    assert kinds.rows("texts", "value") == [("one",), ("two",)]
    assert kinds.rows("blobs", "length", "content") == [(2, b"\x00\x01")]
    assert kinds.rows("avro", "id") == [(1,), (2,)]
    assert kinds.rows("guessed", "id", "_meta") == [(1, {"n": 1}), (2, {"n": 2})]
    pins = [json.loads(pin.read_text()) for pin in kinds.here.rglob("_anabranch/schemas/*.json")]
    assert {pin["format"] for pin in pins} == {"parquet", "avro", "json"}


@pytest.mark.parametrize(
    ("folder", "name", "content", "code"),
    [
        ("strict", "bad.json", b'{"id":2}\n{"id":"x"}\n', "SOURCE_RECORD_MALFORMED"),
        ("strict", "half.json.gz", gzip.compress(b'{"id":3}\n' * 999)[:-20], "SOURCE_FILE_UNREADABLE"),
        ("parquet", "half.parquet", b"PAR1....", "SOURCE_FILE_UNREADABLE"),
        ("guessed", "bad.json", b'{"_meta": {"n": 3}, "data": [{"id": "x"}]}\n', "SOURCE_RECORD_MALFORMED"),
    ],
    ids=["line", "gzip", "parquet", "envelope"],
)
def test_what_cannot_be_read_is_named_and_given_up_by_an_empty_file(
    kinds: Lake, folder: str, name: str, content: bytes, code: str
) -> None:
    before = {table: kinds.rows(table, "id") for table in ("strict", "parquet", "guessed")}
    put(kinds.here / folder, {name: content})
    with pytest.raises(AnabranchError) as failed:
        kinds.run()
    assert failed.value.code == code
    assert f"{folder}/{name}" in failed.value.message
    if code == "SOURCE_FILE_UNREADABLE":  # the other two would say the same
        (kinds.here / folder / name).unlink()
        with pytest.raises(AnabranchError) as failed:
            kinds.run()
        assert failed.value.code == "SOURCE_FILE_GONE"
    (kinds.here / folder / name).write_bytes(b"")
    kinds.run()
    assert {table: kinds.rows(table, "id") for table in before} == before


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"path": "/no/such/folder"}, "is not there"),
        ({"format": "jsn"}, 'no format "jsn"'),
        ({"clean": "archive"}, "go together"),
        ({"clean": "archive", "archive": "{here}/text/old"}, "outside of"),
        ({"clean": "delete", "path": "s3://b/x"}, "local files"),
        ({"format": "text", "dead_letters": True}, "no records"),
        ({"format": "csv", "envelope": "data"}, "from JSON"),
        ({"schema": "id WHAT"}, "cannot be read"),
        ({"format": "json"}, "no place to keep the schema"),
    ],
)
def test_what_is_asked_for_in_vain(kinds: Lake, asked: dict[str, Any], words: str) -> None:
    given = {key: value.format(here=kinds.here) if isinstance(value, str) else value for key, value in asked.items()}
    with pytest.raises(AnabranchError) as refused:
        sources.files(**{"path": f"{kinds.here}/text", "format": "json", **given})
    assert refused.value.code == "FILES_SOURCE"
    assert words in refused.value.message
    assert refused.value.hint
