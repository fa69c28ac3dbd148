"""What goes over the wire, without a broker: JSON, Avro and Protobuf values, options, which column is what."""

from __future__ import annotations

import io
import json
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.connectors.contract import SinkSpec
from anabranch.connectors.kafka_options import client_settings
from anabranch.connectors.kafka_rows import Layout, raw_values
from anabranch.connectors.wire_json import check_json, json_rows
from anabranch.connectors.wire_values import open_values
from anabranch.core.secrets import hide
from anabranch.errors import DataError, ProjectError, SinkError

sys.path.insert(0, str(Path(__file__).parents[1] / "servers"))
from wire_samples import AVRO, ORDER, message_class, write_descriptors

ROWS = pa.schema([("id", pa.int64()), ("name", pa.string()), ("tags", pa.list_(pa.string()))])


def batch(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=schema)


def encoded(options: dict[str, str], rows: list[dict[str, Any]], schema: pa.Schema) -> list[bytes | None]:
    values = open_values(SinkSpec("out", "kafka://t", options={"topic": "t", **options}))
    values.check(schema, schema.names)
    return values(batch(rows, schema), tuple(schema.names))


EVERY = pa.schema(
    [
        ("whole", pa.int64()),
        ("part", pa.float64()),
        ("exact", pa.decimal128(20, 2)),
        ("yes", pa.bool_()),
        ("text", pa.string()),
        ("bytes", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("inner", pa.struct([("x", pa.int32()), ("y", pa.list_(pa.struct([("z", pa.string())])))])),
        ("many", pa.list_(pa.list_(pa.int32()))),
        ("by_name", pa.map_(pa.string(), pa.float64())),
        ("by_number", pa.map_(pa.int32(), pa.string())),
    ]
)


def test_every_type_as_json() -> None:
    row = {
        "whole": -5,
        "part": 1e300,
        "exact": Decimal("1234567890123456.78"),
        "yes": True,
        "text": 'ä "q" \\ \n\t\x01',
        "bytes": b"\x00\xff",
        "day": date(2026, 1, 2),
        "at": datetime(2026, 1, 2, 3, 4, 5, 678901, UTC),
        "local": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC).replace(tzinfo=None),
        "inner": {"x": None, "y": [{"z": "a"}, None, {"z": None}]},
        "many": [[1, None], [], None],
        "by_name": [("a", 1.5), ("b", None)],
        "by_number": [(7, "x")],
    }
    value = json_rows(batch([row, {}], EVERY), EVERY.names).to_pylist()
    assert b'"exact":1234567890123456.78,' in value[0]
    assert json.loads(value[0]) == {
        **row,
        "exact": 1234567890123456.78,
        "bytes": "AP8=",
        "day": "2026-01-02",
        "at": "2026-01-02T03:04:05.678901Z",
        "local": "2026-01-02T03:04:05.000000",
        "inner": {"y": [{"z": "a"}, None, {}]},
        "by_name": {"a": 1.5, "b": None},
        "by_number": {"7": "x"},
    }
    assert value[1] == b"{}"


def test_json_of_numbers_that_json_does_not_have() -> None:
    values = pa.RecordBatch.from_pydict({"x": [float("nan"), float("inf"), float("-inf"), 0.5, None]})
    assert json_rows(values, ["x"]).to_pylist() == [
        b'{"x":"NaN"}', b'{"x":"Infinity"}', b'{"x":"-Infinity"}', b'{"x":0.5}', b"{}",
    ]  # fmt: skip


TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
OBJECT = st.fixed_dictionaries(
    {
        "id": st.none() | st.integers(-(2**63), 2**63 - 1),
        "name": st.none() | TEXT,
        "tags": st.none() | st.lists(st.none() | TEXT, max_size=3),
    }
)


@given(st.lists(OBJECT, max_size=5), st.integers(0, 4))
def test_json_agrees_with_the_standard_library(rows: list[dict[str, Any]], skip: int) -> None:
    part = batch(rows, ROWS).slice(skip)  # part of a larger batch, as readers of Parquet give it
    found = [json.loads(value) for value in json_rows(part, ROWS.names).to_pylist()]
    assert found == [{k: v for k, v in row.items() if v is not None} for row in rows[skip:]]


def test_a_variant_has_no_form_in_json() -> None:
    from anabranch.connectors.variants import VARIANT

    with pytest.raises(ProjectError, match='"v" is or holds a variant'):
        check_json(pa.schema([("v", pa.list_(VARIANT))]), "out")


ORDERS = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("inner", pa.struct([("x", pa.float64())])),
    ]
)
ORDER_ROWS: list[dict[str, Any]] = [
    {"id": 1, "name": "a", "tags": ["x", "y"], "inner": {"x": 1.5}},
    {"id": 2, "name": None, "tags": [], "inner": None},
]


def test_avro_by_a_file(tmp_path: Path) -> None:
    file = tmp_path / "orders.avsc"
    file.write_text(AVRO)
    options = {"value.format": "avro", "value.schema": str(file)}
    parsed = fastavro.parse_schema(json.loads(AVRO))
    values = encoded(options, ORDER_ROWS, ORDERS)
    assert [fastavro.schemaless_reader(io.BytesIO(v or b""), parsed, None) for v in values] == ORDER_ROWS
    with pytest.raises(ProjectError, match="no field for more"):
        encoded(options, [], ORDERS.append(pa.field("more", pa.int32())))
    with pytest.raises(ProjectError, match="no column for tags"):
        encoded(options, [], pa.schema([("id", pa.int64())]))
    with pytest.raises(DataError, match=r"shop\.Order\.id"):
        encoded(options, [{**ORDER_ROWS[0], "id": "seven"}], ORDERS.set(0, pa.field("id", pa.string())))
    with pytest.raises(ProjectError, match="cannot be read"):
        encoded({**options, "value.schema": "/nowhere.avsc"}, [], ORDERS)


def test_protobuf_by_a_descriptor_set(tmp_path: Path) -> None:
    file = write_descriptors(tmp_path / "orders.desc")
    options = {"value.format": "protobuf", "value.schema": str(file), "value.message": ORDER}
    schema = (
        ORDERS.append(pa.field("kind", pa.string()))
        .append(pa.field("at", pa.timestamp("us", "UTC")))
        .append(pa.field("counts", pa.map_(pa.string(), pa.int32())))
    )
    at = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
    rows = [{**ORDER_ROWS[0], "kind": "LARGE", "at": at, "counts": [("a", 1)]}, ORDER_ROWS[1]]
    first, second = (message_class().FromString(v) for v in encoded(options, rows, schema))
    assert (first.id, first.name, list(first.tags), first.inner.x, first.kind) == (1, "a", ["x", "y"], 1.5, 1)
    assert (first.at.ToDatetime(UTC), dict(first.counts)) == (at, {"a": 1})
    assert (second.id, second.HasField("name"), second.HasField("inner")) == (2, False, False)
    with pytest.raises(DataError, match="column kind"):
        encoded(options, [{**rows[0], "kind": "HUGE"}], schema)
    with pytest.raises(ProjectError, match=r"it has .*shop\.Order"):
        encoded({**options, "value.message": "shop.Ordre"}, [], schema)


@pytest.fixture
def registry() -> Iterator[tuple[str, list[str]]]:
    """A schema registry that knows one subject and one password."""
    asked: list[str] = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            allowed = self.headers.get("Authorization") == "Basic bWU6c2VjcmV0LXdvcmQ="
            known = self.path == "/subjects/t-value/versions/latest"
            self.send_response(401 if not allowed else 200 if known else 404)
            self.end_headers()
            if allowed and known:
                self.wfile.write(json.dumps({"id": 258, "version": 3, "schema": AVRO}).encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    server.server_close()


def test_avro_by_a_registry(registry: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    url, asked = registry
    monkeypatch.setenv("REGISTRY_PASSWORD", "secret-word")
    options = {"value.format": "avro", "value.registry": url, "value.registry.auth": "me:${env:REGISTRY_PASSWORD}"}
    (value,) = encoded(options, ORDER_ROWS[:1], ORDERS)
    assert value is not None
    assert value[:5] == b"\x00\x00\x00\x01\x02"
    assert asked == ["/subjects/t-value/versions/latest"]
    with pytest.raises(SinkError) as refused:
        encoded({**options, "value.registry.auth": "me:wrong-word"}, [], ORDERS)
    assert (refused.value.code, refused.value.retryable) == ("REGISTRY_UNREACHABLE", False)
    with pytest.raises(ProjectError, match='no schema for "other-value"'):
        encoded({**options, "topic": "other"}, [], ORDERS)
    with pytest.raises(SinkError, match="does not answer"):
        encoded({**options, "value.registry": "http://127.0.0.1:9"}, [], ORDERS)


def test_options_as_java_spells_them() -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="hyacinth-5";'
    given = {
        "topic": "t",
        "kafka.bootstrap.servers": "h:1",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": jaas,
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": "/ca.pem",
        "kafka.ssl.keystore.type": "PKCS12",
        "kafka.ssl.keystore.location": "/me.p12",
        "kafka.ssl.keystore.password": "begonia-5",
    }
    assert client_settings(given, "out") == {
        "bootstrap.servers": "h:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "me",
        "sasl.password": "hyacinth-5",
        "ssl.ca.location": "/ca.pem",
        "ssl.keystore.location": "/me.p12",
        "ssl.keystore.password": "begonia-5",
    }
    assert hide("hyacinth-5 begonia-5") == "*** ***"


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("ssl.truststore.location", "/trust.jks"),
        ("ssl.keystore.location", "/key.jks"),
        ("sasl.jaas.config", "com.sun.security.auth.module.Krb5LoginModule required;"),
        ("transactional.id", "mine"),
    ],
)
def test_options_that_cannot_be_translated_are_named(option: str, value: str) -> None:
    with pytest.raises(ProjectError) as refused:
        client_settings({f"kafka.{option}": value}, "out")
    assert option in refused.value.message
    assert refused.value.hint


def test_which_column_is_what() -> None:
    schema = pa.schema(
        [
            ("key", pa.string()),
            ("value", pa.binary()),
            ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
            ("partition", pa.int32()),
            ("topic", pa.string()),
            ("offset", pa.int64()),
        ]
    )
    layout = Layout.of(schema, {"value.format": "raw"}, "out")
    row = {"key": "k", "value": b"v", "headers": [{"key": "h", "value": b"1"}], "partition": 3}
    assert list(layout.messages(batch([row, {}], schema), raw_values)) == [
        (b"v", b"k", [("h", b"1")], 3, 0),
        (None, None, None, -1, 0),
    ]
    named = Layout.of(ROWS.append(pa.field("to", pa.int32())), {"key": "id", "partition": "to"}, "out")
    assert (named.key, named.partition, named.values) == ("id", "to", ("id", "name", "tags"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"key": "idd"}, '"idd", which is no column'),
        ({"key": "tags"}, "key"),
        ({"headers": "name"}, "headers"),
        ({"partition": "name"}, "partition"),
        ({"timestamp": "id"}, "timestamp"),
        ({"value.format": "raw"}, 'no column "value"'),
    ],
)
def test_columns_that_do_not_fit_are_named(options: dict[str, str], said: str) -> None:
    with pytest.raises(ProjectError, match=said) as refused:
        Layout.of(ROWS, options, "out")
    assert refused.value.code == "KAFKA_COLUMNS"
