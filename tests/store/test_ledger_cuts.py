"""Channels and cuts: registering, reading consistent cuts beside a writer, retention."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from anabranch.core.epoch import Applied, EpochKey, Receipt
from anabranch.errors import LockHeld, StateError
from anabranch.store.ledger import Ledger, OutputRecord

SINKS = ("requests", "errors", "metrics")


def test_registering_again_finds_the_same_pipeline(ledger: Ledger) -> None:
    assert ledger.pipeline("shop") is None
    made = ledger.register("shop", "/data/shop")
    assert ledger.register("shop", "/data/shop") == made == ledger.pipeline("shop")
    assert ledger.register("other", "/data/shop").pipeline_id != made.pipeline_id
    with pytest.raises(StateError) as refused:
        ledger.register("shop", "/data/elsewhere")
    assert refused.value.code == "LEDGER_FOREIGN"


def test_a_storage_can_move(ledger: Ledger) -> None:
    made = ledger.register("shop", "/data/shop")
    ledger.move_storage("shop", "/new/shop")
    ledger.move_storage("unknown", "/new")
    assert ledger.register("shop", "/new/shop").pipeline_id == made.pipeline_id
    assert ledger.pipeline("unknown") is None


def test_outputs_follow_the_project(channel: Any) -> None:
    ledger, pipeline = channel.ledger, channel.pipeline_id
    assert [o.name for o in ledger.channels(pipeline)[0].outputs] == sorted(SINKS)
    more = [OutputRecord(s, "delta", f"/data/{s}") for s in ("errors", "audit")]
    ledger.ensure_channel(pipeline, "side", more)
    outputs = {c.channel: [o.name for o in c.outputs] for c in ledger.channels(pipeline)}
    assert outputs == {"main": ["metrics", "requests"], "side": ["audit", "errors"]}


def test_outputs_do_not_change_under_an_open_epoch(channel: Any) -> None:
    lease = channel.lease()
    key = channel.decide(lease, 0)
    same = [OutputRecord(s, "delta", f"/data/{s}") for s in reversed(SINKS)]
    channel.ledger.ensure_channel(channel.pipeline_id, "main", same)
    for name in ("main", "side"):  # changed in its channel, or drawn into another one
        with pytest.raises(StateError) as refused:
            channel.ledger.ensure_channel(channel.pipeline_id, name, same[:1])
        assert refused.value.code == "EPOCH_STILL_OPEN"
    channel.apply(lease, key)
    channel.ledger.publish(lease, key, window=0, times={})
    changed = channel.ledger.ensure_channel(channel.pipeline_id, "main", same[:1])
    assert changed.outputs == tuple(same[:1])


HOLDS = """
    import sys
    from anabranch.store.ledger import Ledger
    ledger = Ledger.open(sys.argv[1], create=False)
    ledger.acquire(sys.argv[2], "main", seconds=600)
    print("held", flush=True)
    sys.stdin.read()
"""


def test_outputs_do_not_change_under_another_process(channel: Any, url: str, child: Any) -> None:
    other = child(HOLDS, url, channel.pipeline_id)
    assert other.stdout.readline() == "held\n"
    with pytest.raises(LockHeld) as refused:
        channel.ledger.ensure_channel(channel.pipeline_id, "main", [])
    assert refused.value.code == "LOCK_HELD"
    assert len(channel.ledger.channels(channel.pipeline_id)[0].outputs) == 3


def test_the_cut_is_the_newest_published_epoch_of_every_channel(channel: Any) -> None:
    ledger, pipeline = channel.ledger, channel.pipeline_id
    lease = channel.lease()
    assert ledger.cut(pipeline).epochs == {}
    for epoch in range(3):
        channel.publish(lease, epoch)
    ledger.ensure_channel(pipeline, "side", [OutputRecord("audit", "iceberg", "/data/audit")])
    key = channel.decide(lease, 3)
    channel.apply(lease, key)  # applied, but not published: no reader of the cut sees it
    cut = ledger.cut(pipeline)
    assert (cut.pipeline, cut.epochs) == (pipeline, {"main": 2})
    assert {t.name: (t.format, t.location, t.version, t.epoch) for t in cut.tables.values()} == {
        s: ("delta", f"/data/{s}", "1002", 2) for s in SINKS
    }
    assert ledger.cut(pipeline, at={"main": 1}).tables["errors"].version == "1001"


def test_a_cut_that_is_not_there_says_what_is(channel: Any) -> None:
    ledger, pipeline = channel.ledger, channel.pipeline_id
    with pytest.raises(StateError, match="published nothing yet"):
        ledger.cut(pipeline, at={"main": 0})
    lease = channel.lease()
    for epoch in range(6):
        channel.publish(lease, epoch)
    channel.decide(lease, 6)
    ledger.prune(pipeline, "main", keep_from_epoch=2)
    for epoch in (1, 6, 99):
        with pytest.raises(StateError) as refused:
            ledger.cut(pipeline, at={"main": epoch})
        assert (refused.value.code, refused.value.hint) == ("CUT_NOT_FOUND", "epochs 2 to 5 can be read")
    with pytest.raises(StateError) as refused:
        ledger.cut(pipeline, at={"mian": 1})
    assert (refused.value.code, refused.value.hint) == ("CUT_NOT_FOUND", 'did you mean "main"?')


def test_a_new_generation_takes_over_the_cut_when_it_publishes(channel: Any) -> None:
    lease = channel.lease()
    for epoch in range(3):
        channel.publish(lease, epoch)
    channel.ledger.new_generation(lease)
    assert channel.ledger.cut(channel.pipeline_id).tables["errors"].version == "1002"
    channel.publish(lease, 0, generation=2)
    cut = channel.ledger.cut(channel.pipeline_id)
    assert (cut.epochs, cut.tables["errors"].version) == ({"main": 0}, "2000")
    assert channel.ledger.prune(channel.pipeline_id, "main", keep_from_epoch=0) == 3


def test_an_output_that_changed_channels_is_read_from_its_new_one(channel: Any) -> None:
    ledger, pipeline = channel.ledger, channel.pipeline_id
    channel.publish(channel.lease(), 0)
    ledger.ensure_channel(pipeline, "a-side", [OutputRecord("errors", "delta", "/data/errors")])
    assert ledger.cut(pipeline).tables["errors"].version == "1000"
    lease = ledger.acquire(pipeline, "a-side", seconds=60)
    key = EpochKey(pipeline, "a-side", 1, 0)
    ledger.decide(lease, key, [Receipt("errors", (), "{}")], offsets="", times={})
    ledger.record_applied(lease, key, "errors", Applied("55"), at=0.0)
    ledger.publish(lease, key, window=0, times={})
    cut = ledger.cut(pipeline)
    assert {name: table.version for name, table in cut.tables.items()} == {
        "errors": "55",
        "metrics": "1000",
        "requests": "1000",
    }


@pytest.mark.parametrize("own_connection", [False, True])
def test_a_reader_beside_a_writer_never_sees_a_torn_or_older_cut(channel: Any, url: str, own_connection: bool) -> None:
    rounds = 120
    lease = channel.lease()
    reader = Ledger.open(url, create=False, readonly=True) if own_connection else channel.ledger
    stop = threading.Event()
    seen: list[int] = []
    failures: list[BaseException] = []

    def read() -> None:
        try:
            while not stop.is_set():
                cut = reader.cut(channel.pipeline_id)
                if cut.tables:
                    assert set(cut.tables) == set(SINKS)
                    (version,) = {t.version for t in cut.tables.values()}
                    assert int(version) == 1000 + cut.epochs["main"]
                    assert not seen or cut.epochs["main"] >= seen[-1]
                    seen.append(cut.epochs["main"])
        except BaseException as error:  # noqa: BLE001 - handed to the main thread
            failures.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        epoch = -1
        while epoch < rounds - 1 or (len(set(seen)) <= 10 and thread.is_alive()):  # until it has seen something
            epoch += 1
            channel.publish(lease, epoch)
            if epoch % 20 == 19:
                channel.ledger.prune(channel.pipeline_id, "main", keep_from_epoch=epoch - 5)
    finally:
        stop.set()
        thread.join()
        if own_connection:
            reader.close()
    assert failures == []
    assert len(set(seen)) > 10
    assert channel.ledger.cut(channel.pipeline_id).epochs == {"main": epoch}


def test_pruning_keeps_the_newest_and_what_is_open(channel: Any) -> None:
    ledger, pipeline = channel.ledger, channel.pipeline_id
    assert ledger.prune(pipeline, "main", keep_from_epoch=100) == 0
    lease = channel.lease()
    keys = [channel.publish(lease, epoch) for epoch in range(6)]
    channel.apply(lease, channel.decide(lease, 6), "errors")
    assert ledger.prune(pipeline, "main") == 0
    middle = channel.stored(keys[3]).published_at
    assert ledger.prune(pipeline, "main", published_before=middle, keep_from_epoch=2) == 2
    assert ledger.prune(pipeline, "main", published_before=middle) == 1
    assert [r.key.epoch for r in ledger.epochs(pipeline)] == [6, 5, 4, 3]
    assert ledger.prune(pipeline, "main", keep_from_epoch=100) == 2
    assert [r.key.epoch for r in ledger.epochs(pipeline)] == [6, 5]
    assert ledger.epoch(keys[0]) is None


def test_retained_names_every_version_an_epoch_pins(channel: Any) -> None:
    ledger, pipeline = channel.ledger, channel.pipeline_id
    lease = channel.lease()
    for epoch in range(4):
        channel.publish(lease, epoch)
    key = channel.decide(lease, 4)
    channel.apply(lease, key, "errors", "metrics")
    ledger.record_applied(lease, key, "requests", Applied("1003"), at=0.0)  # no rows: the version stayed
    ledger.publish(lease, key, window=0, times={})
    ledger.prune(pipeline, "main", keep_from_epoch=2)
    pinned = {(t.name, t.version): t.epoch for t in ledger.retained(pipeline)}
    assert pinned == {
        ("requests", "1002"): 2,
        ("requests", "1003"): 4,
        **{(sink, f"100{n}"): n for sink in ("errors", "metrics") for n in (2, 3, 4)},
    }


def test_a_discarded_epoch_pins_nothing_and_is_forgotten(channel: Any) -> None:
    ledger, pipeline = channel.ledger, channel.pipeline_id
    lease = channel.lease()
    channel.publish(lease, 0)
    channel.apply(lease, channel.decide(lease, 1), "errors", "metrics")
    ledger.new_generation(lease)
    assert {t.version for t in ledger.retained(pipeline)} == {"1000"}
    channel.publish(lease, 0, generation=2)
    assert ledger.prune(pipeline, "main", keep_from_epoch=0) == 2
    assert [r.key for r in ledger.epochs(pipeline)] == [channel.key(0, 2)]
