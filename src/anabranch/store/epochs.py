"""What an epoch goes through in the ledger: decided, applied, published, and the one way back.

Every function here runs inside one transaction that holds the channel's row, so that a channel's epochs have one writer
at a time and a writer that was taken over is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, and_, insert, update

from anabranch.core import crash
from anabranch.core.epoch import OPEN, Applied, EpochKey, Receipt, State, may_move
from anabranch.core.quality import FlowQuality, to_json
from anabranch.errors import StateError
from anabranch.store.epoch_rows import (
    Row,
    applied_seal,
    at_key,
    key_columns,
    key_of,
    named,
    newest,
    outputs_of,
    receipt_seal,
    sinks_of,
    stored,
)
from anabranch.store.records import OutputRecord
from anabranch.store.schema import epochs, quality, sealed, sinks

Change = Callable[[Connection], None]


def decide(
    connection: Connection,
    channel: Row,
    key: EpochKey,
    receipts: Sequence[Receipt],
    offsets: str,
    times: Mapping[str, float],
    found: Sequence[FlowQuality],
) -> None:
    """Write the epoch with all its receipts, or refuse."""
    by_sink = {r.sink: r for r in receipts}
    places = outputs_of(connection, key.pipeline, key.channel)
    if len(by_sink) != len(receipts) or set(by_sink) != {p.name for p in places}:
        raise StateError(
            "EPOCH_SINKS_DIFFER",
            f"{named(key)} has receipts of {_listed(r.sink for r in receipts)}, "
            f"the channel's outputs are {_listed(p.name for p in places)}",
            hint="every output takes part in every epoch, if only with no rows; register the outputs anew",
        )
    _check_order(connection, channel, key)
    row = {
        **key_columns(key),
        "state": State.DECIDED.value,
        "offsets": offsets,
        "sinks": json.dumps(sorted(by_sink)),
        "token": channel["token"],
        "decided_at": channel["now"],
        "times": _json(times),
        "torn_window": 0.0,
    }
    connection.execute(insert(epochs), sealed(epochs, row))
    connection.execute(insert(sinks), [_new_sink(key, place, by_sink[place.name]) for place in places])
    if found:
        connection.execute(insert(quality), sealed(quality, {**key_columns(key), "found": to_json(found)}))
    crash.point("deciding")


def _check_order(connection: Connection, channel: Row, key: EpochKey) -> None:
    if key.generation != channel["generation"]:
        raise StateError(
            "EPOCH_OUT_OF_ORDER",
            f"{named(key)} cannot be decided: the channel is in generation {channel['generation']}",
            hint="start the run again; it takes up the channel's generation",
        )
    last = newest(connection, key.pipeline, key.channel, epochs.c.generation == key.generation)
    if last is None:
        return
    if key.epoch <= last["epoch"]:
        raise StateError(
            "EPOCH_ALREADY_DECIDED",
            f"{named(key)} is decided already; the newest is {last['epoch']}",
            hint="run `anabranch recover`: a decided epoch is applied from its record, never decided twice",
        )
    if last["state"] in OPEN:
        raise still_open(key_of(last), State(last["state"]))
    if key.epoch != last["epoch"] + 1:
        raise StateError(
            "EPOCH_OUT_OF_ORDER",
            f"{named(key)} cannot be decided: the next one is {last['epoch'] + 1}",
            hint="the checkpoint and the ledger do not belong together: restore the checkpoint that goes with this "
            f"ledger, or start over with `anabranch reset {key.channel}`",
        )


def restage(connection: Connection, key: EpochKey, names: Sequence[str], reason: str) -> None:
    """Take the receipts of these sinks back, because their staged files are damaged."""
    row = stored(connection, key)
    found = sinks_of(connection, key)
    for name in names:
        if _sink(found, key, name)["version"] is not None:
            raise StateError(
                "EPOCH_WRONG_STATE",
                f'sink "{name}" has taken {named(key)} already and cannot be staged again',
                hint="name only the sinks that have not taken the epoch",
            )
    if row["state"] != State.RESTAGE:
        _move(row, State.RESTAGE)
    for name in names:
        _write_applied(connection, key, {**found[name], "restaging": 1})
    _write_epoch(connection, row, state=State.RESTAGE.value, reason=reason)


def redecide(connection: Connection, key: EpochKey, receipts: Sequence[Receipt]) -> None:
    """Put new receipts in the place of those that were taken back."""
    row = stored(connection, key)
    _move(row, State.DECIDED)
    found = sinks_of(connection, key)
    wanted = sorted(name for name, sink in found.items() if sink["restaging"])
    if sorted(r.sink for r in receipts) != wanted:
        raise StateError(
            "EPOCH_SINKS_DIFFER",
            f"{named(key)} waits for new receipts of {_listed(wanted)}, not of {_listed(r.sink for r in receipts)}",
            hint="stage exactly the sinks that were taken back",
        )
    for receipt in receipts:
        place = OutputRecord(receipt.sink, found[receipt.sink]["format"], found[receipt.sink]["location"])
        mine = and_(at_key(sinks, key), sinks.c.sink == receipt.sink)
        connection.execute(update(sinks).where(mine).values(_new_sink(key, place, receipt)))
    _write_epoch(connection, row, state=State.DECIDED.value, reason=None)
    crash.point("deciding")


def record_applied(connection: Connection, key: EpochKey, name: str, applied: Applied, at: float) -> None:
    """Note the version a sink stands at. The last sink of the epoch moves it to `APPLIED`."""
    row = stored(connection, key)
    found = sinks_of(connection, key)
    sink = _sink(found, key, name)
    if sink["version"] is not None:
        if sink["version"] == applied.version:
            return
        raise StateError(
            "SINK_DIVERGED",
            f'sink "{name}" took {named(key)} as version {sink["version"]} and now says {applied.version}',
            hint="somebody rolled this table back or replaced it; compare it with the cut before going on",
        )
    if row["state"] == State.DISCARDED:
        raise _wrong_state(row, "a reset gave it up")
    if sink["restaging"]:
        raise _wrong_state(row, f'its receipt for sink "{name}" was taken back')
    changed = {**sink, "version": applied.version, "already": int(applied.already), "applied_at": float(at)}
    _write_applied(connection, key, changed)
    others = (s["version"] for other, s in found.items() if other != name)
    if all(version is not None for version in others):
        _move(row, State.APPLIED)
        _write_epoch(connection, row, state=State.APPLIED.value)


def publish(connection: Connection, channel: Row, key: EpochKey, window: float, times: Mapping[str, float]) -> None:
    """Let readers of the cut see the epoch. Publishing it again changes nothing."""
    row = stored(connection, key)
    if row["state"] == State.PUBLISHED:
        return
    _move(row, State.PUBLISHED)
    last = newest(connection, key.pipeline, key.channel)
    if last is not None and (last["generation"], last["epoch"]) != (key.generation, key.epoch):
        raise StateError(
            "EPOCH_OUT_OF_ORDER",
            f"{named(key)} cannot be published: {named(key_of(last))} came after it",
            hint="run `anabranch recover`: it finishes open epochs in their order",
        )
    _write_epoch(
        connection,
        row,
        state=State.PUBLISHED.value,
        published_at=channel["now"],
        torn_window=float(window),
        times=_json({**json.loads(row["times"]), **times}),
    )
    crash.point("publishing")


def join(
    connection: Connection, key: EpochKey, place: OutputRecord, receipt: Receipt, applied: Applied, at: float
) -> None:
    """Give an output a part in an epoch that is published: it stands at this version there.

    One that is new has been given the rows of all epochs up to this one; one that was there has been rebuilt of them.
    """
    row = stored(connection, key)
    if row["state"] != State.PUBLISHED:
        raise still_open(key, State(row["state"]))
    found = sinks_of(connection, key)
    new = {**_new_sink(key, place, receipt), "version": applied.version, "applied_at": float(at)}
    new["applied_checksum"] = applied_seal(new)
    if place.name in found:
        mine = and_(at_key(sinks, key), sinks.c.sink == place.name)
        connection.execute(update(sinks).where(mine).values(new))
        return
    connection.execute(insert(sinks), new)
    _write_epoch(connection, row, sinks=json.dumps(sorted([*found, place.name])))


def give_up(connection: Connection, pipeline_id: str, channel: str) -> None:
    """Discard the epoch of a channel that is still open, if there is one."""
    row = newest(connection, pipeline_id, channel)
    if row is not None and row["state"] in OPEN:
        _move(row, State.DISCARDED)
        _write_epoch(connection, row, state=State.DISCARDED.value)


def _move(row: Row, to: State) -> None:
    if not may_move(State(row["state"]), to):
        raise _wrong_state(row, f"it cannot become {to}")


def _wrong_state(row: Row, reason: str) -> StateError:
    return StateError(
        "EPOCH_WRONG_STATE",
        f"{named(key_of(row))} is {row['state']}: {reason}",
        hint="run `anabranch recover`: it brings every open epoch to its end",
    )


def still_open(key: EpochKey, state: State) -> StateError:
    """The error for what must wait until an epoch is published."""
    return StateError(
        "EPOCH_STILL_OPEN",
        f"{named(key)} is {state}, not yet published",
        hint="run `anabranch recover`: it finishes what was decided",
    )


def _write_epoch(connection: Connection, row: Row, **changes: object) -> None:
    values = sealed(epochs, {**row, **changes})
    changed = {name: values[name] for name in (*changes, "checksum")}
    connection.execute(update(epochs).where(at_key(epochs, key_of(row))).values(changed))


def _new_sink(key: EpochKey, place: OutputRecord, receipt: Receipt) -> dict[str, Any]:
    text = receipt.to_json()
    row: dict[str, Any] = {
        **key_columns(key),
        "sink": place.name,
        "format": place.format,
        "location": place.location,
        "receipt": text,
        "receipt_checksum": receipt_seal(key, place.name, text),
        "version": None,
        "already": 0,
        "restaging": 0,
        "applied_at": None,
    }
    return {**row, "applied_checksum": applied_seal(row)}


def _write_applied(connection: Connection, key: EpochKey, row: Row) -> None:
    names = ("version", "already", "restaging", "applied_at")
    changed = {name: row[name] for name in names} | {"applied_checksum": applied_seal(row)}
    mine = and_(at_key(sinks, key), sinks.c.sink == row["sink"])
    connection.execute(update(sinks).where(mine).values(changed))


def _sink(found: Mapping[str, Row], key: EpochKey, name: str) -> Row:
    if name not in found:
        raise StateError(
            "EPOCH_SINKS_DIFFER",
            f'sink "{name}" has no part in {named(key)}, only {_listed(found)}',
            hint="outputs change between epochs only; run `anabranch recover` with those it was decided for",
        )
    return found[name]


def _json(times: Mapping[str, float]) -> str:
    return json.dumps({name: float(seconds) for name, seconds in times.items()}, sort_keys=True)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in sorted(names)) or "none"
