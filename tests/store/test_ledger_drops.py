"""Outputs that are dropped: out of the channel and the newest cut, known by a note until their files are gone."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.errors import StateError


def test_it_leaves_the_newest_cut_and_stays_in_older_ones(channel: Any) -> None:
    ledger, pipeline = channel.ledger, channel.pipeline_id
    lease = channel.lease()
    for epoch in (0, 1):
        channel.publish(lease, epoch)
    ledger.drop(lease, "errors")
    assert set(ledger.cut(pipeline).tables) == {"requests", "metrics"}
    assert set(ledger.cut(pipeline, at={"main": 0}).tables) == {"requests", "errors", "metrics"}
    assert [o.name for o in ledger.channels(pipeline)[0].outputs] == ["metrics", "requests"]
    assert channel.stored(channel.key(1)).receipts.keys() == {"requests", "metrics"}  # sealed anew


def test_where_it_was_is_known_until_its_files_are_gone(channel: Any) -> None:
    ledger, pipeline = channel.ledger, channel.pipeline_id
    lease = channel.lease()
    channel.publish(lease, 0)
    before = ledger.output(pipeline, "errors")
    assert before.output.location == "/data/errors"
    for _ in range(2):  # again after a crash
        ledger.drop(lease, "errors")
        assert ledger.output(pipeline, "errors") == before
    ledger.dropped(pipeline, "errors")
    assert ledger.output(pipeline, "errors") is None
    ledger.drop(lease, "errors")  # nothing is known of it any more
    assert ledger.output(pipeline, "errors") is None
    assert ledger.output(pipeline, "requests").channel == "main"


def test_an_open_epoch_is_finished_first(channel: Any) -> None:
    lease = channel.lease()
    channel.publish(lease, 0)
    channel.decide(lease, 1)
    with pytest.raises(StateError) as refused:
        channel.ledger.drop(lease, "errors")
    assert refused.value.code == "EPOCH_STILL_OPEN"
    assert len(channel.ledger.cut(channel.pipeline_id).tables) == 3


def test_a_channel_that_has_nothing_left_begins_anew(channel: Any) -> None:
    ledger, pipeline = channel.ledger, channel.pipeline_id
    lease = channel.lease()
    channel.publish(lease, 0)
    for name in ("requests", "errors"):
        ledger.drop(lease, name)
    assert ledger.channels(pipeline)[0].generation == 1
    for _ in range(2):
        ledger.drop(lease, "metrics")
    (found,) = ledger.channels(pipeline)
    assert (found.generation, found.outputs) == (2, ())
    cut = ledger.cut(pipeline)
    assert (dict(cut.epochs), dict(cut.tables)) == ({}, {})


def test_another_runner_keeps_it(channel: Any) -> None:
    from anabranch.errors import LockHeld

    lease = channel.lease(seconds=0.0)
    newer = channel.lease()
    with pytest.raises(LockHeld):
        channel.ledger.drop(lease, "errors")
    channel.ledger.drop(newer, "errors")
