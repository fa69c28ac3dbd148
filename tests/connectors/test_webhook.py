"""The webhook sink against a real receiver that fails, hangs, answers late, refuses and loses answers."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.connectors.contract import SinkSpec
from anabranch.connectors.parquet_files import StagedWriter
from anabranch.connectors.registry import open_sink
from anabranch.connectors.webhook import WebhookSink
from anabranch.core import crash
from anabranch.core.epoch import EpochKey, Receipt
from anabranch.errors import AnabranchError, ProjectError, SinkError, StateError

sys.path.insert(0, str(Path(__file__).parents[1] / "servers"))
from http_listener import nobody
from webhook_receiver import Receiver

SCHEMA = pa.schema([("id", pa.int64())])
# Patient, so that no slow machine is taken for a receiver that does not answer.
USUAL = {"patience": "600", "timeout": "120", "tries": "2", "batch": "2"}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        yield server


def key(epoch: int, generation: int = 1) -> EpochKey:
    return EpochKey("p-1", "main", generation, epoch)


def sink_at(folder: Path, url: str, *, declared: bool = True, **options: str) -> WebhookSink:
    said = {"url": url, **USUAL, **options} if declared else {}
    sink = open_sink("webhook", SinkSpec("out", "webhook://out", "p-1", str(folder), said, declared))
    assert isinstance(sink, WebhookSink)
    if declared:
        sink.prepare(SCHEMA)
    return sink


def stage(sink: WebhookSink, at: EpochKey, rows: list[int], token: int = 1) -> Receipt:
    writer = StagedWriter(sink.staging(at, token), "t")
    writer.write(pa.record_batch([pa.array(rows, pa.int64())], schema=SCHEMA))
    return Receipt.from_json(sink.receipt(at, writer.close()).to_json())


def give(sink: WebhookSink, epoch: int, rows: list[int]) -> str | None:
    return sink.apply(key(epoch), stage(sink, key(epoch), rows)).note


def spooled(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.rglob("*") if p.is_file() and "_taken" not in p.parts)


def test_rows_go_out_in_parts_with_a_key_and_headers(tmp_path: Path, receiver: Receiver) -> None:
    sink = sink_at(tmp_path, receiver.url, **{"headers.X-Team": "ops", "method": "put"})
    assert give(sink, 7, [1, 2, 3]) is None
    (path, headers, body), (_, _, second) = receiver.requests
    assert path == "/hook?team=ops"
    assert (headers["X-Team"], headers["Content-Type"]) == ("ops", "application/json")
    assert headers["Idempotency-Key"] == "anabranch/p-1/main/1/out/7/0"
    said = {"pipeline": "p-1", "channel": "main", "generation": 1, "epoch": 7, "sink": "out"}
    assert body == {**said, "part": 0, "rows": [{"id": 1}, {"id": 2}]}
    assert second == {**said, "part": 1, "rows": [{"id": 3}]}
    assert spooled(tmp_path) == []
    assert sink.version() == "1-7"


@pytest.mark.parametrize("answer", [500, 503, 429, 408, "lost", "hang", "drip"])
@pytest.mark.parametrize("on_failure", ["keep", "block"])
def test_what_may_pass_is_tried_again_with_the_same_key(
    tmp_path: Path, receiver: Receiver, answer: Any, on_failure: str
) -> None:
    receiver.answers, silent = [answer], answer in ("hang", "drip")
    options = {"timeout": "0.5", "tries": "20"} if silent else {}
    assert give(sink_at(tmp_path, receiver.url, on_failure=on_failure, **options), 0, [1]) is None
    ((key, tries),) = receiver.keys.items()
    assert key == "anabranch/p-1/main/1/out/0/0"
    assert tries >= 2 if silent else tries == 2
    assert receiver.ids == [1]


@pytest.mark.parametrize("answer", [500, "hang", "drip", "lost"])
def test_a_receiver_that_is_away_holds_no_epoch_up_for_long_and_gets_its_rows_later_in_order(
    tmp_path: Path, receiver: Receiver, answer: Any
) -> None:
    receiver.always = answer
    silent = answer in ("hang", "drip")
    sink = sink_at(tmp_path, receiver.url, **({"patience": "0.4"} if silent else {}))
    for epoch, rows in enumerate(([1, 2, 3], [4], [])):
        began = time.monotonic()
        note = give(sink, epoch, rows) or ""
        assert time.monotonic() - began < 60  # half of what one answer is waited for
        assert note.startswith("4 rows kept" if epoch else "3 rows kept")
    assert sink.latest(key(0)) == 1
    assert sink.leftovers(frozenset(), 9) == []  # what waits is nobody's leftover
    receiver.always = 200
    assert give(sink_at(tmp_path, receiver.url), 3, [5]) is None  # another process
    assert receiver.ids == [1, 2, 3, 4, 5]
    assert [k.rpartition("out/")[2] for k in receiver.taken] == ["0/0", "0/1", "1/0", "3/0"]
    assert spooled(tmp_path) == []


def test_what_waits_is_sent_at_the_next_start(tmp_path: Path, receiver: Receiver) -> None:
    receiver.always = 500
    give(sink_at(tmp_path, receiver.url), 0, [1, 2, 3])
    gone = sink_at(tmp_path, "", declared=False)
    assert gone.send_waiting() == "3 rows wait to be sent, and where to is no longer declared"
    receiver.always = 200
    assert sink_at(tmp_path, receiver.url).send_waiting() is None
    assert receiver.ids == [1, 2, 3]
    assert gone.send_waiting() is None


def test_a_part_that_was_taken_is_not_sent_again(tmp_path: Path, receiver: Receiver) -> None:
    receiver.answers = [200, 500, 500]
    sink = sink_at(tmp_path, receiver.url)
    assert (give(sink, 0, [1, 2, 3, 4, 5]) or "").startswith("3 rows kept")
    assert sink_at(tmp_path, receiver.url, batch="100").send_waiting() is None  # parted as it was begun
    assert receiver.keys == {f"anabranch/p-1/main/1/out/0/{n}": c for n, c in ((0, 1), (1, 3), (2, 1))}
    assert receiver.ids == [1, 2, 3, 4, 5]


def test_no_receiver_at_all(tmp_path: Path) -> None:
    with nobody() as url:
        assert "Connection" in (give(sink_at(tmp_path, url), 0, [1]) or "")


def test_it_waits_as_long_as_it_is_asked_to(tmp_path: Path, receiver: Receiver) -> None:
    receiver.answers = [(429, {"Retry-After": "1"})]
    sink = sink_at(tmp_path, receiver.url)
    began = time.monotonic()
    assert give(sink, 0, [1]) is None
    assert time.monotonic() - began >= 1.0
    receiver.answers = [(503, {"Retry-After": "3600"})]
    assert give(sink, 1, [2]) is not None
    asked = len(receiver.requests)
    assert give(sink, 2, [3]) == "2 rows kept, to be sent with the next epoch or at the next start: " + (
        "the receiver asked to come again later"
    )
    assert len(receiver.requests) == asked  # it was not asked before its time


@pytest.mark.parametrize("status", [400, 401, 404, 410, 422, 302])
def test_what_is_refused_for_good_is_put_aside_and_told(tmp_path: Path, receiver: Receiver, status: int) -> None:
    receiver.answers = [200, (status, {"body": "no such thing", "Location": "/other"})]
    sink = sink_at(tmp_path, receiver.url)
    note = give(sink, 4, [1, 2, 3, 4, 5]) or ""
    assert "2 rows not delivered" in note
    assert receiver.ids == [1, 2, 5]
    assert len(receiver.requests) == 3  # not tried again, and not sent elsewhere
    (file,) = (tmp_path / "staged" / "out" / "_refused" / "main").iterdir()
    record = json.loads(file.read_text())
    assert record["body"]["rows"] == [{"id": 3}, {"id": 4}]
    assert record["answer"] == f"HTTP {status} no such thing"
    assert record["key"] == "anabranch/p-1/main/1/out/4/1"
    assert str(file.parents[1]) in note


@pytest.mark.parametrize(("answer", "code"), [(500, "WEBHOOK_FAILED"), (422, "WEBHOOK_REFUSED")])
def test_when_it_blocks_the_epoch_waits(tmp_path: Path, receiver: Receiver, answer: int, code: str) -> None:
    receiver.always = answer
    sink = sink_at(tmp_path, receiver.url, on_failure="block")
    receipt = stage(sink, key(0), [1, 2, 3])
    for _ in range(2):
        with pytest.raises(SinkError) as failed:
            sink.apply(key(0), receipt)
        assert (failed.value.code, failed.value.retryable) == (code, code == "WEBHOOK_FAILED")
        assert sink.find(key(0)) is None
        assert sink.send_waiting() is None  # it is not sent behind the back of whoever applies it
    receiver.always = 200
    assert sink_at(tmp_path, receiver.url, on_failure="block").apply(key(0), receipt).version == "1-0"
    assert receiver.ids == [1, 2, 3]


def test_rows_that_were_staged_again_get_other_keys(tmp_path: Path, receiver: Receiver) -> None:
    """A receiver that knows a key would take the new rows for the old ones."""
    sink = sink_at(tmp_path, receiver.url, on_failure="block")
    receiver.answers, receiver.always = [200], 500
    with pytest.raises(SinkError):
        sink.apply(key(0), stage(sink, key(0), [1, 2, 3]))
    receiver.always = 200
    sink.apply(key(0), stage(sink, key(0), [3, 2, 1], token=2))
    assert list(receiver.taken)[1:] == [f"anabranch/p-1/main/1/out/0/{n}/again-1" for n in (0, 1)]
    assert receiver.ids == [1, 2, 3, 2, 1]


def test_after_a_reset_nothing_that_was_given_up_is_sent(tmp_path: Path, receiver: Receiver) -> None:
    receiver.always = 500
    sink = sink_at(tmp_path, receiver.url, on_failure="block")
    with pytest.raises(SinkError):
        sink.apply(key(0), stage(sink, key(0), [1]))
    receiver.always = 200
    again = key(0, generation=2)
    sink.apply(again, stage(sink, again, [1, 2], token=2))
    assert receiver.ids == [1, 2]
    assert [path for path, _ in sink.leftovers(frozenset(), 9)] != []  # and its rows are removed as leftovers


def test_kept_rows_that_are_damaged_are_told(tmp_path: Path, receiver: Receiver) -> None:
    receiver.always = 500
    give(sink_at(tmp_path, receiver.url), 0, [1, 2, 3])
    (file,) = (tmp_path / "staged" / "out").glob("*.parquet")
    file.write_bytes(b"")
    receiver.always = 200
    assert "3 rows not delivered" in (give(sink_at(tmp_path, receiver.url), 1, [4]) or "")
    assert receiver.ids == [4]
    (record,) = (tmp_path / "staged" / "out" / "_refused" / "main").iterdir()
    assert json.loads(record.read_text())["rows"] == 3


def test_without_its_declaration_it_says_so(tmp_path: Path, receiver: Receiver) -> None:
    receipt = stage(sink_at(tmp_path, receiver.url), key(0), [1])
    bare = sink_at(tmp_path, "", declared=False)
    with pytest.raises(StateError) as refused:
        bare.apply(key(0), receipt)
    assert refused.value.code == "DECLARATION_NEEDED"
    assert bare.find(key(0)) is None
    assert bare.damaged(receipt) is None


@pytest.mark.parametrize(
    "options",
    [
        {"url": "ftp://host/x"},
        {"url": "https://"},
        {"url": "http://host:99999/"},
        {"batch": "0"},
        {"batch": "1.5"},
        {"timeout": "soon"},
        {"patience": "-1"},
        {"on_failure": "explode"},
        {"method": "GET"},
        {"headers.X": "hush-hush\nX: y"},
    ],
    ids=str,
)
def test_options_that_make_no_sense_are_refused_before_anything_is_read(
    tmp_path: Path, options: dict[str, str]
) -> None:
    spec = SinkSpec("out", "webhook://out", "p-1", str(tmp_path), {"url": "http://h/", **options})
    with pytest.raises(ProjectError) as refused:
        open_sink("webhook", spec).prepare(SCHEMA)
    assert refused.value.code == "OPTION_INVALID"
    assert refused.value.hint
    assert "hush-hush" not in str(refused.value)


def test_a_name_and_password_in_the_address_are_sent_as_such(tmp_path: Path, receiver: Receiver) -> None:
    sink = sink_at(tmp_path, receiver.url.replace("//", "//ann:tulip%2F9@"))
    assert give(sink, 0, [1]) is None
    assert receiver.requests[0][1]["Authorization"] == "Basic YW5uOnR1bGlwLzk="


def test_every_type_has_a_form_in_json(tmp_path: Path, receiver: Receiver) -> None:
    import datetime as dt
    from decimal import Decimal

    table = pa.table(
        {
            "n": pa.array([Decimal("1.10")], pa.decimal128(9, 2)),
            "at": pa.array([dt.datetime(2026, 1, 2, 3, tzinfo=dt.UTC)], pa.timestamp("us", "UTC")),
            "day": pa.array([dt.date(2026, 1, 2)]),
            "raw": pa.array([b"\x00a"]),
            "x": pa.array([float("inf")]),
            "m": pa.array([[("k", [1, None])]], pa.map_(pa.string(), pa.list_(pa.int64()))),
            "s": pa.array([{"a": None, "b": True}], pa.struct([("a", pa.int64()), ("b", pa.bool_())])),
        }
    )
    sink = sink_at(tmp_path, receiver.url)
    sink.prepare(table.schema)
    writer = StagedWriter(sink.staging(key(0), 1), "t")
    for batch in table.to_batches():
        writer.write(batch)
    sink.apply(key(0), sink.receipt(key(0), writer.close()))
    assert receiver.requests[0][2]["rows"] == [
        {
            "n": "1.10",
            "at": "2026-01-02T03:00:00+00:00",
            "day": "2026-01-02",
            "raw": "AGE=",
            "x": "Infinity",
            "m": {"k": [1, None]},
            "s": {"a": None, "b": True},
        }
    ]


ANSWERS = st.sampled_from([200, 200, 500, "lost", 422])


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.lists(st.integers(0, 9), max_size=4), st.sampled_from([None, "committed"])), max_size=5),
    st.lists(ANSWERS, max_size=12),
)
def test_any_course_of_events_delivers_every_row_at_least_once_or_puts_it_aside(
    tmp_path_factory: pytest.TempPathFactory,
    epochs: list[tuple[list[int], str | None]],
    answers: list[Any],
) -> None:
    """Each epoch: its rows, and whether the process dies in between; then the receiver is well, and all is sent."""
    folder, expected = tmp_path_factory.mktemp("out"), list[int]()
    with Receiver(answers) as receiver, pytest.MonkeyPatch.context() as patch:
        for epoch, (rows, point) in enumerate(epochs):
            sink = sink_at(folder, receiver.url, tries="1")
            receipt = stage(sink, key(epoch), rows)
            if point:
                crash._hits.clear()
                patch.setenv(crash.VARIABLE, f"{point}:raise")
                with pytest.raises(crash.CrashPointError) if rows else _nothing():
                    sink.apply(key(epoch), receipt)
                patch.delenv(crash.VARIABLE)
            sink_at(folder, receiver.url, tries="1").apply(key(epoch), receipt)
            expected += rows
        receiver.answers.clear()
        assert sink_at(folder, receiver.url).send_waiting() is None
        aside = [json.loads(p.read_text())["body"] for p in (folder / "staged" / "out" / "_refused").rglob("*.json")]
        delivered = [*receiver.taken.values(), *aside]
    got = {(body["epoch"], body["part"]): [row["id"] for row in body["rows"]] for body in delivered}
    assert [n for place in sorted(got) for n in got[place]] == expected
    in_order = [(body["epoch"], body["part"]) for body in receiver.taken.values()]
    assert in_order == sorted(in_order)
    assert list(folder.rglob("*.parquet")) == []


class _nothing:
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def test_nothing_of_it_needs_more_than_the_standard_library(tmp_path: Path, receiver: Receiver) -> None:
    sink = sink_at(tmp_path, receiver.url)
    assert sink.capabilities.exactly_once is False
    with pytest.raises(AnabranchError):
        sink.discard(["_waiting/0000000001.json"])
