"""Rows posted as JSON to a receiver: at least once, in their order, each request with a key that stays the same.

An epoch's rows are put into an outbox below the storage, then sent in parts. What the receiver does not take stays in
the outbox and is sent by the epochs after it and at the next start, before anything newer: with `on_failure` "keep" the
epoch goes on meanwhile, with "block" it fails and is tried again. What the receiver refuses for good is put aside in
`_refused`, with its answer.
"""

from __future__ import annotations

import base64
import json
import math
import random
import time
from collections.abc import Iterator
from datetime import date, datetime
from datetime import time as time_of_day
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from anabranch.connectors.contract import SinkSpec
from anabranch.connectors.http_post import Answer, NoAnswerError, post
from anabranch.connectors.outbox import Outbox, Waiting
from anabranch.connectors.spooled_sink import SpooledSink
from anabranch.connectors.taken import Taken, version_of
from anabranch.connectors.webhook_options import WebhookOptions, options_of
from anabranch.core import crash
from anabranch.core.epoch import Applied, EpochKey, Receipt
from anabranch.core.formats import WEBHOOK
from anabranch.core.hidden import hide
from anabranch.errors import SinkError

if TYPE_CHECKING:
    import pyarrow as pa

REFUSED = "_refused"

_FIRST_WAIT = 0.1  # seconds; doubled with each try


class WebhookSink(SpooledSink):
    """A receiver of rows; it cannot be asked what it has."""

    format = "webhook"
    capabilities = WEBHOOK.capabilities

    def __init__(self, spec: SinkSpec) -> None:
        super().__init__(spec)
        self._taken = Taken(self.spool.folder)
        self._outbox = Outbox(self.spool)
        self._not_before = 0.0  # the receiver asked not to be asked until then

    def examine(self, schema: pa.Schema) -> str:
        """What becomes of rows of this schema."""
        super().examine(schema)
        return f"rows are sent in requests of {options_of(self.spec).batch}"

    def prepare(self, schema: pa.Schema) -> None:
        """Whatever columns there are, they are sent; faults of the options are found before anything is read."""
        options_of(self.spec)
        super().prepare(schema)

    def apply(self, key: EpochKey, receipt: Receipt) -> Applied:
        """Put the rows into the outbox and send it; with "keep", whatever is left there is told and does not hold."""
        found = self.find(key) if receipt.files else Applied(self.version())
        if found is None:
            self._put(key, receipt)
        note = self._send(key) if self.spec.declared else self._left_behind()
        if found is None:
            self._taken.mark(key)
            crash.point("committed", self.name)
        self._outbox.clear()
        return Applied(found.version, found.already, note) if found else Applied(version_of(key), note=note)

    def send_waiting(self) -> str | None:
        """Send what epochs before have left; what is still left then, in words."""
        note = self._send(None) if self.spec.declared else self._left_behind()
        self._outbox.clear()
        return note

    def latest(self, key: EpochKey) -> int | None:
        """The newest epoch whose rows are taken care of: sent, or kept to be sent."""
        return self._taken.latest(key)

    def version(self) -> str:
        """Generation and epoch of the last rows that were taken."""
        return self._taken.version()

    def leftovers(self, keep: frozenset[str], token: int) -> list[tuple[str, int]]:
        """Staged files of older attempts that neither an epoch nor the outbox waits for."""
        return self.spool.leftovers(keep | self._outbox.files(), token)

    def _put(self, key: EpochKey, receipt: Receipt) -> None:
        self.must_be_declared(key)
        for entry in self._outbox.entries():
            # A reset gave it up before it was taken: its rows come again.
            if (
                entry.key.channel == key.channel
                and entry.key.generation < key.generation
                and not self._taken.passed(entry.key)
            ):
                self._outbox.remove(entry)
        self._outbox.add(key, receipt, options_of(self.spec).batch)

    def _send(self, current: EpochKey | None) -> str | None:
        """Send what is in the outbox, oldest first, until the receiver stops taking it; what was not taken, in words.

        Rows of an epoch that is still to be taken belong to whoever applies it.
        """
        options, refused = options_of(self.spec), 0
        for entry in self._outbox.entries():
            if entry.is_sent or not (entry.key == current or self._taken.passed(entry.key)):
                continue
            if entry.key != current and (damage := self.spool.damaged(entry.receipt)):
                refused += self._lost(entry, damage)
                continue
            for part, rows in self._parts(entry):
                body = _body(entry, part, rows)
                try:
                    answer = self._try(options, entry.key_of(part), body)
                except NoAnswerError as error:
                    return self._stopped(options, entry, hide(str(error)))
                if not answer.is_taken:
                    self._refused(options, entry, part, answer, body)
                    refused += len(rows)
                self._outbox.mark_sent(entry, part)
        return (
            f"{_rows(refused)} not delivered, and never will be: see {self.spool.location}/{REFUSED}"
            if refused
            else None
        )

    def _try(self, options: WebhookOptions, key: str, body: bytes) -> Answer:
        """The answer to one request, tried again while that may help; `NoAnswerError` when patience is at its end."""
        headers = {"Content-Type": "application/json", "User-Agent": "anabranch", **options.headers}
        headers["Idempotency-Key"] = quote(key, safe="/")
        until, reason = time.monotonic() + options.patience, "the receiver asked to come again later"
        wait = self._not_before - time.monotonic()
        for number in range(options.tries):
            left = until - time.monotonic()
            if wait >= left:
                break
            time.sleep(max(0.0, wait))
            try:
                answer = post(options.url, options.method, headers, body, min(options.timeout, left - max(0.0, wait)))
            except NoAnswerError as error:
                asked, reason = None, str(error)
            else:
                if not answer.may_pass:
                    return answer
                asked, reason = answer.wait, f"HTTP {answer.status} {answer.text[:200]}".strip()
            wait = asked if asked is not None else _FIRST_WAIT * 2.0**number * random.uniform(0.5, 1.0)
            self._not_before = time.monotonic() + asked if asked is not None else 0.0
        raise NoAnswerError(reason)

    def _stopped(self, options: WebhookOptions, entry: Waiting, reason: str) -> str:
        if options.blocks:
            raise SinkError(
                "WEBHOOK_FAILED",
                f'"{self.name}": {_rows(entry.rows_left)} of epoch {entry.key.epoch} could not be sent: {reason}',
                hint="see that the receiver is up; what it has not taken is sent again, with the same Idempotency-Key",
                retryable=True,
            )
        rows = sum(e.rows_left for e in self._outbox.entries())
        return f"{_rows(rows)} kept, to be sent with the next epoch or at the next start: {reason}"

    def _refused(self, options: WebhookOptions, entry: Waiting, part: int, answer: Answer, body: bytes) -> None:
        """Put a part aside that the receiver will never take; with "block", ask for help instead."""
        said = hide(f"HTTP {answer.status} {answer.text}").strip()
        if options.blocks:
            raise SinkError(
                "WEBHOOK_REFUSED",
                f'"{self.name}": the receiver refused part {part} of epoch {entry.key.epoch}: {said[:300]}',
                hint='mend the receiver, the options or the flow and run again; on_failure "keep" puts such rows aside',
            )
        self._put_aside(entry, part, {"answer": said, "key": entry.key_of(part), "body": json.loads(body)})

    def _lost(self, entry: Waiting, damage: str) -> int:
        """Give up what was kept and cannot be read any more; how many rows."""
        left = [part for part in range(entry.parts) if part not in entry.sent]
        record = {"damaged": damage, "rows": entry.rows_left, "keys": [entry.key_of(part) for part in left]}
        self._put_aside(entry, left[0], record)
        for part in left:
            self._outbox.mark_sent(entry, part)
        return entry.rows_left

    def _put_aside(self, entry: Waiting, part: int, record: dict[str, Any]) -> None:
        path = f"{REFUSED}/{entry.key.channel}/{version_of(entry.key)}-{part}.json"
        self.spool.folder.remove(path)  # a try before this one was cut half way
        with self.spool.folder.create(path) as file:
            file.write(json.dumps(record, indent=1).encode())
        self.spool.folder.sync_file(path)
        self.spool.folder.sync([path])

    def _parts(self, entry: Waiting) -> Iterator[tuple[int, list[Any]]]:
        """The rows that are to be sent, with the number of each part; at every try the same."""
        part, rows = 0, list[Any]()
        for batch in self.spool.batches(entry.receipt):
            for row in batch.to_pylist():
                rows.append(row)
                if len(rows) == entry.batch:
                    if part not in entry.sent:
                        yield part, rows
                    part, rows = part + 1, []
        if rows and part not in entry.sent:
            yield part, rows

    def _left_behind(self) -> str | None:
        rows = sum(e.rows_left for e in self._outbox.entries())
        return f"{_rows(rows)} wait to be sent, and where to is no longer declared" if rows else None


def _body(entry: Waiting, part: int, rows: list[Any]) -> bytes:
    key = entry.key
    said = {"pipeline": key.pipeline, "channel": key.channel, "generation": key.generation, "epoch": key.epoch}
    document = {**said, "sink": entry.receipt.sink, "part": part, "rows": plain(rows)}
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def plain(value: Any) -> Any:
    """A value in what JSON knows, as Spark's `to_json` writes it; decimals as text, so that no digit is lost.

    >>> from decimal import Decimal
    >>> plain({"at": date(2026, 1, 2), "n": Decimal("1.10"), "x": float("nan"), "m": [("k", b"a")]})
    {'at': '2026-01-02', 'n': '1.10', 'x': 'NaN', 'm': {'k': 'YQ=='}}
    """
    match value:
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case None | bool() | int() | float() | str():
            return value
        case dict():
            return {key: plain(each) for key, each in value.items()}
        case list() if value and all(isinstance(each, tuple) for each in value):  # how Arrow gives a map
            return {str(plain(key)): plain(each) for key, each in value}
        case list():
            return [plain(each) for each in value]
        case bytes():
            return base64.b64encode(value).decode()
        case datetime() | date() | time_of_day():
            return value.isoformat()
        case _:
            return str(value)


def _rows(count: int) -> str:
    return f"{count:,} row{'' if count == 1 else 's'}"
