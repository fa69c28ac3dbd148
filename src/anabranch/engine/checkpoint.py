"""Spark's checkpoint beside the ledger: read its offsets, and refuse it when the two do not belong together.

A batch id of the checkpoint is the epoch number. Spark writes `offsets/n` before an epoch and `commits/n` after it, so
with L the last epoch the ledger decided, the newest offsets are those of L or L + 1 and the newest commit is at most L.
Anything else means that one of the two was restored, copied or lost.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from anabranch.core.durable import sync, write_whole
from anabranch.core.epoch import EpochKey
from anabranch.engine.source_files_log import batches_in, file_of, is_local, local_path, log_offset, read_in
from anabranch.errors import StateError
from anabranch.store.ledger import EpochRecord

_MARKER = "anabranch.json"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The checkpoint folder of one channel and generation."""

    folder: Path

    def offsets(self, epoch: int) -> str | None:
        """Where each source stands at the end of an epoch, one line each; None when Spark has not written it."""
        path = self.folder / "offsets" / str(epoch)
        if not path.exists():
            return None
        _version, _metadata, *lines = path.read_text().splitlines()
        return "\n".join(lines)

    def time(self, epoch: int) -> datetime:
        """What time it is in an epoch, however often it is computed."""
        metadata = json.loads((self.folder / "offsets" / str(epoch)).read_text().splitlines()[1])
        return datetime.fromtimestamp(metadata["batchTimestampMs"] / 1000, UTC)

    def settle(self, epoch: int) -> None:
        """Make what Spark wrote for an epoch survive a power cut: a decided epoch must find its offsets again."""
        places = range(len((self.offsets(epoch) or "").splitlines()))
        batches = [file_of(self.log(place), n) for place in places for n in batches_in(self, place, epoch)]
        paths = [self.folder / "offsets" / str(epoch), *batches]
        for path in [p for p in paths if p.exists()]:
            sync(path)
            sync(path.parent)

    def input_bytes(self, epoch: int) -> int | None:
        """The size of the files that an epoch reads; None where that is not known before they are read.

        Spark's file source lists the files of a batch in a log of its own. Any other source, or files that are not
        local, are of unknown size.
        """
        lines = (self.offsets(epoch) or "").splitlines()
        if not lines or any(line != "-" and log_offset(line) is None for line in lines):
            return None
        read = [entry for place in range(len(lines)) for entry in read_in(self, place, epoch)]
        if not all(map(is_local, read)):
            return None
        try:
            return sum(os.stat(path).st_size for path in {local_path(entry) for entry in read})
        except FileNotFoundError:
            return None

    def newest(self, log: str) -> int | None:
        """The newest batch of the log `offsets` or `commits`."""
        folder = self.folder / log
        numbers = [int(p.name) for p in folder.iterdir() if p.name.isdigit()] if folder.is_dir() else []
        return max(numbers, default=None)

    def log(self, place: int) -> Path:
        """What Spark keeps for a source; `place`: of its offsets among those of all.

        A source that is read in two places has offsets for each of them, and one folder.
        """
        numbers = self._marked().get("numbers", [])
        return self.folder / "sources" / str(numbers[place] if place < len(numbers) else place)

    def claim(self, key: EpochKey, ledger_id: str, sources: tuple[str, ...], numbers: tuple[int, ...]) -> None:
        """Mark a new folder as ours, or check that it is; `numbers`: of the folder of each source."""
        wanted: dict[str, Any] = {
            "pipeline": key.pipeline,
            "channel": key.channel,
            "generation": key.generation,
            "ledger": ledger_id,
        }
        reads: dict[str, Any] = {"sources": list(sources), "numbers": list(numbers)}
        marked = self._marked()
        if not marked:
            self._mark({**wanted, **reads})
            return
        found = {name: value for name, value in marked.items() if name not in reads}
        if found != wanted:
            raise StateError(
                "CHECKPOINT_FOREIGN",
                f"the checkpoint {self.folder} belongs to another pipeline, channel, generation or ledger",
                hint=f"put the right folder back, or start over: anabranch reset {key.channel}",
                details={"found": found, "expected": wanted},
            )
        before = {**reads, **{name: marked[name] for name in reads if name in marked}}
        if before != reads:
            raise StateError(
                "SOURCES_CHANGED",
                f'the sources of channel "{key.channel}" changed: they were {_told(before)}, now they are '
                f"{_told(reads)}",
                hint=f"undo the change, or rebuild the channel's tables: anabranch reset {key.channel}",
            )
        if "numbers" not in marked:  # as it was written by older versions
            self._mark({**wanted, **reads})

    def sources(self) -> list[str]:
        """The sources that the checkpoint was made for, in Spark's order."""
        found: list[str] = self._marked().get("sources", [])
        return found

    def _marked(self) -> dict[str, Any]:
        marker = self.folder / _MARKER
        found: dict[str, Any] = json.loads(marker.read_text()) if marker.exists() else {}
        return found

    def _mark(self, wanted: Mapping[str, Any]) -> None:
        write_whole(self.folder / _MARKER, json.dumps(wanted, indent=2))

    def verify(self, key: EpochKey, last: EpochRecord | None) -> None:
        """Refuse a checkpoint that does not fit the last epoch the ledger decided (`last`)."""
        offsets, commits = self.newest("offsets"), self.newest("commits")
        if last is None:
            if commits is not None or (offsets or 0) > 0:
                raise _ledger_older(self.folder, max(offsets or 0, commits or 0), None)
            return
        decided = last.key.epoch
        if max(offsets or 0, (commits or 0) + 1) > decided + 1:
            raise _ledger_older(self.folder, max(offsets or 0, commits or 0), decided)
        if not self.folder.is_dir() or offsets is None:
            raise StateError(
                "CHECKPOINT_MISSING",
                f'the ledger knows epoch {decided} of channel "{key.channel}", but {self.folder} has no offsets',
                hint=f"put the checkpoint back, or rebuild the channel's tables: anabranch reset {key.channel}",
            )
        if offsets < decided:
            raise StateError(
                "CHECKPOINT_OLDER",
                f'the checkpoint of channel "{key.channel}" ends at epoch {offsets}, the ledger at {decided}: '
                "going on would give new rows the number of an epoch that is already committed",
                hint=f"put the newer checkpoint back, or rebuild the channel's tables: anabranch reset {key.channel}",
            )
        self.same_offsets(last)

    def same_offsets(self, record: EpochRecord) -> None:
        """Refuse when the checkpoint names other offsets for an epoch than the ledger decided."""
        found = self.offsets(record.key.epoch)
        if found != record.offsets:
            raise StateError(
                "CHECKPOINT_DIVERGED",
                f'epoch {record.key.epoch} of channel "{record.key.channel}" was decided for other offsets '
                "than the checkpoint names",
                hint=f"put the right checkpoint back, or rebuild the tables: anabranch reset {record.key.channel}",
                details={"ledger": record.offsets, "checkpoint": found},
            )


def _told(reads: Mapping[str, Any]) -> str:
    """Sources, for people; those that are there twice with which one is which."""
    sources, numbers = reads["sources"], reads["numbers"]
    if len(set(sources)) == len(sources) or len(sources) != len(numbers):  # older versions kept no numbers
        return str(sources)
    return str([f"{source} ({number})" for source, number in zip(sources, numbers, strict=True)])


def _ledger_older(folder: Path, checkpoint: int, ledger: int | None) -> StateError:
    at = "no epoch at all" if ledger is None else f"epoch {ledger}"
    return StateError(
        "LEDGER_OLDER",
        f"the checkpoint {folder} is at epoch {checkpoint}, but the ledger knows {at}: an older ledger was put back",
        hint="put the newest ledger back; without it, rebuild the tables: anabranch reset CHANNEL",
    )
