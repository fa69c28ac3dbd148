"""Receipts that wait to be sent, in their order: durable, with the parts of each that were sent already.

_waiting/0000000003.json    a receipt with its epoch, and how its rows are parted
_waiting/0000000003-1       its part 1 was taken by the other side, or put aside
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from anabranch.core.epoch import EpochKey, Receipt, digest

if TYPE_CHECKING:
    from anabranch.connectors.spool import Spool

WAITING = "_waiting"

_NAME = re.compile(r"(\d{10})(?:-(\d+)|\.json)")


@dataclass(frozen=True, slots=True)
class Waiting:
    """One receipt: rows go out in parts of `batch`. `again` counts how often its rows had to be staged again."""

    number: int
    key: EpochKey
    receipt: Receipt
    batch: int
    again: int
    sent: frozenset[int]

    @property
    def parts(self) -> int:
        """How many parts there are."""
        return -(-self.receipt.rows // self.batch)

    @property
    def is_sent(self) -> bool:
        """Whether nothing of it is left to be sent."""
        return len(self.sent) >= self.parts

    @property
    def rows_left(self) -> int:
        """Rows that were not sent."""
        return sum(min(self.batch, self.receipt.rows - n * self.batch) for n in range(self.parts) if n not in self.sent)

    def key_of(self, part: int) -> str:
        """What a receiver may know a part by: the same at every try, and never given to other rows.

        >>> Waiting(1, EpochKey("p", "c", 1, 7), Receipt("out", (), ""), 100, 0, frozenset()).key_of(2)
        'anabranch/p/c/1/out/7/2'
        """
        staged_again = f"/again-{self.again}" if self.again else ""
        return f"{self.key.transaction_id(self.receipt.sink)}/{self.key.epoch}/{part}{staged_again}"


class Outbox:
    """What waits in the spool of one sink."""

    def __init__(self, spool: Spool) -> None:
        self.spool, self.folder = spool, spool.folder

    def add(self, key: EpochKey, receipt: Receipt, batch: int) -> None:
        """Put a receipt last, unless it is there. One whose rows were staged again takes the place of the first."""
        again = 0
        for entry in self.entries():
            if entry.key == key:
                if entry.receipt == receipt:
                    return
                again = entry.again + 1
                self.remove(entry)
        self._tidy()
        numbers = [number for number, _ in self._names()]
        path = f"{WAITING}/{max(numbers, default=0) + 1:010d}.json"
        text = json.dumps({"key": asdict(key), "receipt": receipt.to_json(), "batch": batch, "again": again})
        with self.folder.create(path) as file:
            file.write(f"{digest(text)}\n{text}".encode())
        self.folder.sync_file(path)
        self.folder.sync([path])

    def entries(self) -> list[Waiting]:
        """What is there, the oldest first."""
        names = self._names()
        sent: dict[int, set[int]] = {}
        for number, part in names:
            if part is not None:
                sent.setdefault(number, set()).add(part)
        return [
            found
            for number, part in sorted(names, key=lambda n: n[0])
            if part is None
            for found in self._read(number, frozenset(sent.get(number, ())))
        ]

    def mark_sent(self, entry: Waiting, part: int) -> None:
        """Make it known that a part need not be sent any more."""
        path = f"{WAITING}/{entry.number:010d}-{part}"
        self.folder.create(path).close()
        self.folder.sync([path])

    def clear(self) -> None:
        """Forget what was sent as a whole, with its staged rows."""
        for entry in self.entries():
            if entry.is_sent:
                self.remove(entry)
                self.spool.discard(file.path for file in entry.receipt.files)

    def files(self) -> frozenset[str]:
        """The staged files of all that waits."""
        return frozenset(file.path for entry in self.entries() for file in entry.receipt.files)

    def _read(self, number: int, sent: frozenset[int]) -> Iterator[Waiting]:
        """Nothing for a file that was cut half way: its epoch was not taken, and is applied again."""
        said, _, text = (
            (self.folder.read(f"{WAITING}/{number:010d}.json") or b"").decode("utf-8", "replace").partition("\n")
        )
        if said == digest(text):
            raw: dict[str, Any] = json.loads(text)
            key, receipt = EpochKey(**raw["key"]), Receipt.from_json(raw["receipt"])
            yield Waiting(number, key, receipt, raw["batch"], raw["again"], sent)

    def remove(self, entry: Waiting) -> None:
        """Forget one; its staged rows stay."""
        self.folder.remove(f"{WAITING}/{entry.number:010d}.json")
        for part in entry.sent:
            self.folder.remove(f"{WAITING}/{entry.number:010d}-{part}")

    def _tidy(self) -> None:
        """Remove what is left of a file that was cut half way, or whose removal was."""
        whole = {entry.number for entry in self.entries()}
        for number, part in self._names():
            if number not in whole:
                self.folder.remove(f"{WAITING}/{number:010d}{'.json' if part is None else f'-{part}'}")

    def _names(self) -> list[tuple[int, int | None]]:
        """Number and part of every file; no part for the receipts themselves."""
        names = (found.path.rpartition("/")[2] for found in self.folder.files(WAITING, deep=False))
        matches = (match for name in names if (match := _NAME.fullmatch(name)))
        return [(int(match[1]), None if match[2] is None else int(match[2])) for match in matches]
