"""Leases: one holder, taken over when it is gone or late, by a token that only grows."""

from __future__ import annotations

import dataclasses
import os
import time
from typing import Any

import pytest

from anabranch.errors import LockHeld, StateError
from anabranch.store.ledger import Ledger
from anabranch.store.process import Holder, this_process


def test_a_held_lease_names_its_holder(channel: Any) -> None:
    lease = channel.lease(seconds=90)
    with pytest.raises(LockHeld) as refused:
        channel.lease()
    error = refused.value
    assert (error.code, error.exit_code) == ("LOCK_HELD", 6)
    assert f"process {os.getpid()} on {lease.holder.host}" in error.message
    assert (error.details["since"], error.details["expires"]) == (lease.since, lease.expires)
    assert lease.expires == pytest.approx(lease.since + 90)


def test_a_released_lease_is_free_and_worth_nothing(channel: Any) -> None:
    first = channel.lease()
    assert channel.ledger.holders(channel.pipeline_id) == {"main": first.holder}
    channel.ledger.release(first)
    assert channel.ledger.holders(channel.pipeline_id) == {}
    with pytest.raises(LockHeld) as refused:
        channel.decide(first, 0)
    assert refused.value.code == "LOCK_LOST"
    with pytest.raises(LockHeld):
        channel.ledger.renew(first)
    second = channel.lease()
    assert second.token == first.token + 1


def test_an_expired_lease_is_taken_over_and_a_renewed_one_is_not(channel: Any) -> None:
    first = channel.lease(seconds=0.0)
    channel.ledger.renew(dataclasses.replace(first, seconds=600))  # late, but nobody was faster
    with pytest.raises(LockHeld):
        channel.lease()
    channel.ledger.renew(dataclasses.replace(first, seconds=0.2))
    second = channel.lease(wait=300)
    assert second.token == first.token + 1
    with pytest.raises(LockHeld) as refused:
        channel.ledger.renew(first)
    assert refused.value.code == "LOCK_LOST"


def test_waiting_ends(channel: Any) -> None:
    channel.lease()
    began = time.monotonic()
    with pytest.raises(LockHeld):
        channel.lease(wait=0.3)
    assert time.monotonic() - began >= 0.3


def test_channels_have_leases_of_their_own(channel: Any) -> None:
    channel.lease()
    channel.ledger.ensure_channel(channel.pipeline_id, "other", [])
    assert channel.ledger.acquire(channel.pipeline_id, "other", seconds=5).token == 1
    with pytest.raises(StateError) as refused:
        channel.ledger.acquire(channel.pipeline_id, "nowhere", seconds=5)
    assert refused.value.code == "CHANNEL_UNKNOWN"


HOLDS = """
    import sys
    from anabranch.store.ledger import Ledger
    ledger = Ledger.open(sys.argv[1], create=False)
    lease = ledger.acquire(sys.argv[2], "main", seconds=600)
    print(lease.token, flush=True)
    sys.stdin.read()
"""


@pytest.mark.crash
def test_the_lease_of_a_dead_process_is_taken_at_once(channel: Any, url: str, child: Any) -> None:
    other = child(HOLDS, url, channel.pipeline_id)
    token = int(other.stdout.readline())
    with pytest.raises(LockHeld, match=f"process {other.pid} on"):
        channel.lease()
    assert channel.ledger.holders(channel.pipeline_id)["main"].pid == other.pid
    other.kill()
    # Not waited for: until then it is a zombie, which holds nothing any more.
    assert channel.lease(wait=120).token == token + 1


def test_only_a_process_of_this_very_machine_can_be_known_dead() -> None:
    me = this_process()
    assert not me.is_gone()
    assert dataclasses.replace(me, started="1").is_gone()  # the pid was given to another process
    nobody = dataclasses.replace(me, pid=2**22 + 1)
    assert nobody.is_gone()
    assert not dataclasses.replace(nobody, host="elsewhere").is_gone()
    assert not dataclasses.replace(nobody, boot="another boot").is_gone()
    assert not Holder(me.host, "", 1, "").is_gone()


RACES = """
    import sys
    from anabranch.errors import LockHeld
    from anabranch.store.ledger import Ledger
    ledger = Ledger.open(sys.argv[1], create=True)
    shop = ledger.register("shop", "/data/shop")
    ledger.ensure_channel(shop.pipeline_id, "main", [])
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        print(ledger.acquire(shop.pipeline_id, "main", seconds=600).token, flush=True)
    except LockHeld as error:
        print(error.code, flush=True)
    sys.stdin.read()
"""


def test_of_processes_that_start_at_once_one_wins(url: str, child: Any) -> None:
    # Together they also race to make the ledger, the pipeline and the channel.
    racers = [child(RACES, url) for _ in range(4)]
    for racer in racers:
        line = racer.stdout.readline()
        assert line == "ready\n", racer.stderr.read()
    for racer in racers:
        racer.stdin.write("\n")
        racer.stdin.flush()
    answers = sorted(racer.stdout.readline().strip() for racer in racers)
    assert answers == ["1", "LOCK_HELD", "LOCK_HELD", "LOCK_HELD"]
    with Ledger.open(url, create=False) as ledger:
        shop = ledger.pipeline("shop")
        assert shop is not None
        assert len(ledger.channels(shop.pipeline_id)) == 1
