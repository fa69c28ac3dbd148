"""Epochs in the ledger: decided once, in order, by the holder of the lease; applied, published, read back."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from anabranch.core import crash
from anabranch.core.epoch import Applied, EpochKey, Receipt, State
from anabranch.errors import LockHeld, StateError
from anabranch.store.address import parse_address
from anabranch.store.ledger import EpochRecord, Ledger, OutputRecord


def test_an_epoch_goes_from_decided_to_published(channel: Any) -> None:
    lease = channel.lease()
    key = channel.decide(lease, 0)
    decided = channel.stored(key)
    assert decided.state is State.DECIDED
    assert decided.receipts == {r.sink: r for r in channel.receipts(0)}
    assert decided.waiting == ("errors", "metrics", "requests")
    assert (decided.offsets, decided.token, decided.times) == ('{"n":0}', lease.token, {"read": 0.5})
    channel.apply(lease, key, "errors", "requests")
    assert channel.stored(key).state is State.DECIDED
    assert channel.stored(key).waiting == ("metrics",)
    channel.apply(lease, key, "metrics")
    assert channel.stored(key).state is State.APPLIED
    assert channel.ledger.cut(channel.pipeline_id).tables == {}
    channel.ledger.publish(lease, key, window=0.25, times={"apply": 2})
    done = channel.stored(key)
    assert (done.state, done.window, done.times) == (State.PUBLISHED, 0.25, {"read": 0.5, "apply": 2.0})
    assert done.published_at is not None
    assert done.published_at >= done.decided_at
    assert done.applied == {s: Applied("1000") for s in done.receipts}
    assert done.applied_at["errors"] == 5.0
    assert channel.ledger.open_epochs(channel.pipeline_id, "main") == ()


def test_repeating_what_was_done_changes_nothing(channel: Any) -> None:
    lease = channel.lease()
    key = channel.publish(lease, 0)
    before = channel.stored(key)
    channel.apply(lease, key)
    channel.ledger.publish(lease, key, window=9.0, times={"apply": 9})
    assert channel.stored(key) == before


def test_a_sink_that_names_another_version_is_refused(channel: Any) -> None:
    lease = channel.lease()
    key = channel.publish(lease, 0)
    with pytest.raises(StateError) as refused:
        channel.ledger.record_applied(lease, key, "errors", Applied("77"), at=1.0)
    assert refused.value.code == "SINK_DIVERGED"


@pytest.mark.parametrize("published", [False, True])
def test_an_epoch_is_decided_once(channel: Any, published: bool) -> None:
    lease = channel.lease()
    key = channel.publish(lease, 0) if published else channel.decide(lease, 0)
    before = channel.stored(key)
    with pytest.raises(StateError) as refused:
        channel.ledger.decide(lease, key, channel.receipts(7), offsets="other", times={})
    assert refused.value.code == "EPOCH_ALREADY_DECIDED"
    assert channel.stored(key) == before


def test_the_next_epoch_waits_for_the_one_before(channel: Any) -> None:
    lease = channel.lease()
    key = channel.decide(lease, 4)  # the first of a generation may have any number
    for state in (State.DECIDED, State.APPLIED):
        assert channel.stored(key).state is state
        with pytest.raises(StateError) as refused:
            channel.decide(lease, 5)
        assert refused.value.code == "EPOCH_STILL_OPEN"
        channel.apply(lease, key)
    channel.ledger.publish(lease, key, window=0, times={})
    for wrong in (6, 7, 100):
        with pytest.raises(StateError) as refused:
            channel.decide(lease, wrong)
        assert refused.value.code == "EPOCH_OUT_OF_ORDER"
    channel.publish(lease, 5)
    assert [r.key.epoch for r in channel.ledger.epochs(channel.pipeline_id)] == [5, 4]


def test_every_output_takes_part_in_every_epoch(channel: Any) -> None:
    lease = channel.lease()
    for receipts in (channel.receipts(0)[:2], channel.receipts(0) * 2, [*channel.receipts(0), Receipt("x", (), "")]):
        with pytest.raises(StateError) as refused:
            channel.ledger.decide(lease, channel.key(0), receipts, offsets="", times={})
        assert refused.value.code == "EPOCH_SINKS_DIFFER"
    assert channel.ledger.epoch(channel.key(0)) is None


def test_publishing_needs_every_sink(channel: Any) -> None:
    lease = channel.lease()
    key = channel.decide(lease, 0)
    channel.apply(lease, key, "errors")
    with pytest.raises(StateError) as refused:
        channel.ledger.publish(lease, key, window=0, times={})
    assert refused.value.code == "EPOCH_WRONG_STATE"
    with pytest.raises(StateError) as refused:
        channel.ledger.publish(lease, channel.key(9), window=0, times={})
    assert refused.value.code == "EPOCH_UNKNOWN"


def test_an_old_token_can_write_nothing(channel: Any) -> None:
    old = channel.lease(seconds=0.0)
    key = channel.decide(old, 0)
    new = channel.lease()
    assert new.token > old.token
    before = channel.stored(key)
    writes = [
        lambda: channel.decide(old, 1),
        lambda: channel.apply(old, key, "errors"),
        lambda: channel.ledger.publish(old, key, window=0, times={}),
        lambda: channel.ledger.restage(old, key, ["errors"], "torn"),
        lambda: channel.ledger.redecide(old, key, channel.receipts(0)),
        lambda: channel.ledger.new_generation(old),
        lambda: channel.ledger.renew(old),
    ]
    for write in writes:
        with pytest.raises(LockHeld) as refused:
            write()
        assert refused.value.code == "LOCK_LOST"
    channel.ledger.release(old)  # no error, and no effect on the new holder
    assert channel.stored(key) == before
    channel.ledger.renew(new)
    channel.apply(new, key)
    channel.ledger.publish(new, key, window=0, times={})


def test_restaging_replaces_only_what_was_damaged(channel: Any) -> None:
    lease = channel.lease()
    key = channel.decide(lease, 0)
    channel.apply(lease, key, "requests")
    with pytest.raises(StateError, match="has taken epoch 0"):
        channel.ledger.restage(lease, key, ["errors", "requests"], "short file")
    assert channel.stored(key).state is State.DECIDED
    channel.ledger.restage(lease, key, ["errors"], "short file")
    waiting = channel.stored(key)
    assert (waiting.state, waiting.restaging, waiting.reason) == (State.RESTAGE, ("errors",), "short file")
    with pytest.raises(StateError, match="taken back"):
        channel.apply(lease, key, "errors")
    channel.apply(lease, key, "metrics")  # was under way when the damage was found
    assert channel.stored(key).state is State.RESTAGE
    for wrong in (channel.receipts(0), []):
        with pytest.raises(StateError) as refused:
            channel.ledger.redecide(lease, key, wrong)
        assert refused.value.code == "EPOCH_SINKS_DIFFER"
    again = Receipt("errors", (), "{}")
    channel.ledger.redecide(lease, key, [again])
    redecided = channel.stored(key)
    assert (redecided.state, redecided.restaging, redecided.reason) == (State.DECIDED, (), None)
    assert redecided.receipts["errors"] == again
    assert set(redecided.applied) == {"requests", "metrics"}
    channel.apply(lease, key, "errors")
    channel.ledger.publish(lease, key, window=0, times={})
    with pytest.raises(StateError) as refused:
        channel.ledger.restage(lease, key, ["errors"], "late")
    assert refused.value.code == "EPOCH_WRONG_STATE"


def test_more_sinks_can_be_taken_back_while_restaging(channel: Any) -> None:
    lease = channel.lease()
    key = channel.decide(lease, 0)
    channel.ledger.restage(lease, key, ["errors"], "short")
    channel.ledger.restage(lease, key, ["metrics"], "missing")
    assert channel.stored(key).restaging == ("errors", "metrics")


def test_a_new_generation_gives_an_open_epoch_up_and_the_cut_stays(channel: Any) -> None:
    lease = channel.lease()
    channel.publish(lease, 0)
    key = channel.decide(lease, 1)
    assert channel.ledger.new_generation(lease) == 2
    assert channel.stored(key).state is State.DISCARDED
    assert channel.ledger.open_epochs(channel.pipeline_id, "main") == ()
    assert channel.ledger.cut(channel.pipeline_id).epochs == {"main": 0}
    with pytest.raises(StateError) as refused:
        channel.ledger.record_applied(lease, key, "errors", Applied("9"), at=0.0)
    assert refused.value.code == "EPOCH_WRONG_STATE"


def test_a_generation_counts_from_its_own_start(channel: Any) -> None:
    lease = channel.lease()
    channel.publish(lease, 0)
    assert channel.ledger.new_generation(lease) == 2
    assert channel.ledger.channels(channel.pipeline_id)[0].generation == 2
    assert channel.ledger.last(channel.pipeline_id, "main", 2) is None
    with pytest.raises(StateError) as refused:
        channel.decide(lease, 1, generation=1)
    assert refused.value.code == "EPOCH_OUT_OF_ORDER"
    channel.publish(lease, 0, generation=2)
    last = channel.ledger.last(channel.pipeline_id, "main", 2)
    assert last is not None
    assert last.key == channel.key(0, 2)


def test_epochs_can_be_listed_by_channel_and_state(channel: Any) -> None:
    lease = channel.lease()
    for epoch in range(5):
        channel.publish(lease, epoch)
    channel.decide(lease, 5)

    def listed(**chosen: Any) -> list[int]:
        found: tuple[EpochRecord, ...] = channel.ledger.epochs(channel.pipeline_id, **chosen)
        return [r.key.epoch for r in found]

    assert listed() == [5, 4, 3, 2, 1, 0]
    assert listed(limit=2) == [5, 4]
    assert listed(states=[State.DECIDED]) == [5]
    assert listed(channel="main", states=[State.PUBLISHED], limit=1) == [4]
    assert listed(channel="other") == []


@pytest.mark.parametrize("column", ["receipt", "location", "version"])
def test_a_flipped_character_in_a_receipt_is_found(channel: Any, url: str, column: str) -> None:
    key = channel.publish(channel.lease(), 0)
    tamper(url, f"UPDATE anabranch_sinks SET {column} = replace({column}, '0', '8') || ' ' WHERE sink = 'errors'")
    with pytest.raises(StateError) as refused:
        channel.ledger.epoch(key)
    assert refused.value.code == "LEDGER_DAMAGED"
    assert '"errors"' in refused.value.message


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE anabranch_epochs SET offsets = '{}'",
        "UPDATE anabranch_epochs SET state = 'decided'",
        "UPDATE anabranch_epochs SET epoch = 3",
        "UPDATE anabranch_sinks SET receipt = (SELECT receipt FROM anabranch_sinks WHERE sink = 'metrics')",
        "DELETE FROM anabranch_sinks WHERE sink = 'errors'",
    ],
)
def test_an_altered_record_is_found(channel: Any, url: str, change: str) -> None:
    channel.publish(channel.lease(), 0)
    if "SET epoch" in change:
        change = "DELETE FROM anabranch_sinks; " + change
    for statement in change.split("; "):
        tamper(url, statement)
    with pytest.raises(StateError) as refused:
        channel.ledger.epochs(channel.pipeline_id)
    assert refused.value.code == "LEDGER_DAMAGED"


@pytest.mark.parametrize("change", ["generation = 7", "token = 0"])
def test_an_altered_channel_is_found_before_anything_is_written(channel: Any, url: str, change: str) -> None:
    lease = channel.lease()
    tamper(url, f"UPDATE anabranch_channels SET {change}")
    with pytest.raises(StateError) as refused:
        channel.decide(lease, 0)
    assert refused.value.code == "LEDGER_DAMAGED"


def tamper(url: str, statement: str) -> None:
    engine = create_engine(parse_address(url).url)
    with engine.begin() as connection:
        connection.execute(text(statement))
    engine.dispose()


DECIDES = """
    import sys
    from anabranch.core.epoch import Applied, EpochKey, Receipt
    from anabranch.store.ledger import Ledger
    ledger = Ledger.open(sys.argv[1], create=False)
    lease = ledger.acquire(sys.argv[2], "main", seconds=600)
    key = EpochKey(sys.argv[2], "main", 1, 0)
    receipts = [Receipt(sink, (), "{}") for sink in ("requests", "errors", "metrics")]
    ledger.decide(lease, key, receipts, offsets="{}", times={})
    for sink in ("requests", "errors", "metrics"):
        ledger.record_applied(lease, key, sink, Applied("1"), 0.0)
    ledger.publish(lease, key, window=0, times={})
"""


@pytest.mark.crash
@pytest.mark.parametrize(("point", "left"), [("deciding", None), ("publishing", State.APPLIED)])
def test_killed_inside_a_transaction_leaves_nothing_of_it(
    channel: Any, url: str, child: Any, point: str, left: State | None
) -> None:
    died = child(DECIDES, url, channel.pipeline_id, ANABRANCH_CRASH=f"{point}:kill")
    assert (died.wait(240), died.stderr.read()) == (-signal.SIGKILL, "")
    found = channel.ledger.epoch(channel.key(0))
    assert (found and found.state) == left
    lease = channel.lease()  # at once: the holder is known to be dead, though its lease runs for ten minutes
    if left is None:
        channel.publish(lease, 0)
    else:
        channel.ledger.publish(lease, channel.key(0), window=0, times={})
    assert channel.ledger.cut(channel.pipeline_id).epochs == {"main": 0}


def test_a_failure_inside_the_transaction_rolls_back(channel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = channel.lease()
    monkeypatch.setattr(crash, "_hits", Counter())
    monkeypatch.setenv("ANABRANCH_CRASH", "deciding:enospc")
    with pytest.raises(OSError, match="No space left"):
        channel.decide(lease, 0)
    assert channel.ledger.epoch(channel.key(0)) is None
    monkeypatch.delenv("ANABRANCH_CRASH")
    channel.publish(lease, 0)


def test_many_threads_share_one_ledger(channel: Any, ledger: Ledger) -> None:
    places = [OutputRecord(f"t{n}", "delta", f"/t{n}") for n in range(4)]
    failures: list[BaseException] = []

    def work(n: int) -> None:
        try:
            ledger.ensure_channel(channel.pipeline_id, f"c{n}", [places[n]])
            lease = ledger.acquire(channel.pipeline_id, f"c{n}", seconds=60)
            for epoch in range(15):
                key = EpochKey(channel.pipeline_id, f"c{n}", 1, epoch)
                ledger.decide(lease, key, [Receipt(f"t{n}", (), "{}")], offsets="", times={})
                ledger.renew(lease)
                ledger.record_applied(lease, key, f"t{n}", Applied(str(epoch)), at=0.0)
                ledger.publish(lease, key, window=0, times={})
        except BaseException as error:  # noqa: BLE001 - handed to the main thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert ledger.cut(channel.pipeline_id).epochs == {f"c{n}": 14 for n in range(4)}
