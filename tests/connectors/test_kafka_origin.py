"""Headers that say where the row of a message came from; without a broker."""

from __future__ import annotations

import pyarrow as pa

from anabranch.connectors.kafka_rows import Layout
from anabranch.core.epoch import EpochKey

ORIGIN = pa.struct(
    [
        ("source", pa.string()),
        ("file", pa.string()),
        ("position", pa.int64()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("flow", pa.string()),
        ("parent", pa.string()),
    ]
)
ROWS = pa.RecordBatch.from_pylist(
    [
        {"id": 1, "own": [("a", "b")], "_origin": {"topic": "in", "partition": 3, "offset": 41, "flow": "f"}},
        {"id": 2, "own": None, "_origin": {"file": "x.json", "flow": "f", "parent": "g"}},
    ],
    schema=pa.schema([("id", pa.int64()), ("own", pa.map_(pa.string(), pa.string())), ("_origin", ORIGIN)]),
)
KEY = EpochKey("p1", "orders", 2, 7)


def headers(options: dict[str, str]) -> list[dict[str, bytes]]:
    layout = Layout.of(ROWS.schema, {"headers": "own", **options}, "out")
    assert layout.values == (("id",) if "origin.headers" in options else ("id", "_origin"))
    encoded = [m[2] for m in layout.messages(ROWS, lambda batch, _: [b""] * batch.num_rows, KEY)]
    return [dict(found or ()) for found in encoded]  # type: ignore[arg-type]


def test_origin_becomes_headers_beside_those_of_the_row() -> None:
    first, second = headers({"origin.headers": "true"})
    sent = {"pipeline": b"p1", "channel": b"orders", "generation": b"2", "epoch": b"7", "flow": b"f"}
    assert first == {
        "a": b"b",
        **{f"anabranch-origin-{name}": value for name, value in sent.items()},
        "anabranch-origin-topic": b"in",
        "anabranch-origin-partition": b"3",
        "anabranch-origin-offset": b"41",
    }
    assert second == {
        **{f"anabranch-origin-{name}": value for name, value in sent.items()},
        "anabranch-origin-file": b"x.json",
        "anabranch-origin-parent": b"g",
    }


def test_an_epoch_that_is_sent_again_has_the_same_headers() -> None:
    assert headers({"origin.headers": "true"}) == headers({"origin.headers": "true"})


def test_without_the_option_nothing_is_added() -> None:
    assert headers({}) == [{"a": b"b"}, {}]
