"""Audit: Spark computes a sample of every epoch as well, and any difference stops the channel before it is decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from anabranch.engine.catalyst import collect_arrow
from anabranch.engine.rows import OutputColumns, take
from anabranch.errors import InternalError
from anabranch.native.run import NativeRun

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from anabranch.engine.native_pass import NativePass

#: Records of an epoch that are computed twice.
SAMPLE = 1_000

#: The rows of outputs, as texts, and how often each is there.
Found = dict[str, Counter[tuple[str, ...]]]


def audit(native: NativePass, session: SparkSession, raw: pa.RecordBatch, now: datetime, checkpoint: Path) -> None:
    """Refuse an epoch of which some records give other rows than Spark computes."""
    if not raw.num_rows:
        return
    passed = NativeRun(native.work.program, now).take(raw)
    ours: Found = {}
    for part, table in zip(native.work.parts, passed.rows, strict=True):
        _add(ours, part, table.to_batches())
    theirs = _by_spark(native, session, raw, now, checkpoint)
    if passed.rest is not None and passed.rest.num_rows:
        for output, rows in _by_spark(native, session, passed.rest, now, checkpoint).items():
            theirs[output] -= rows  # what is left to Spark is no claim of ours
    for output in sorted(theirs.keys() | ours.keys()):
        there, here = theirs.get(output, Counter()), ours.get(output, Counter())
        if there != here:
            raise _differs(output, here - there, there - here)


def _by_spark(native: NativePass, session: SparkSession, raw: pa.RecordBatch, now: datetime, checkpoint: Path) -> Found:
    with native.frame(session, pa.Table.from_batches([raw]), checkpoint) as left:
        program = native.again_by_spark("rest", left, now)
        batches = collect_arrow(program.frame)
    found: Found = {}
    for part in program.parts:
        _add(found, part, (batch.filter(batch.column(part.mask)) if part.mask else batch for batch in batches))
    return found


def _add(found: Found, part: OutputColumns, batches: Iterable[pa.RecordBatch]) -> None:
    counter = found.setdefault(part.output or (part.judged.dataset if part.judged else ""), Counter())
    for batch in batches:
        columns = [[_text(value) for value in column.to_pylist()] for column in take(batch, part, masked=False).columns]
        counter.update(zip(*columns, strict=True))


def _text(value: Any) -> str:
    return value.hex() if isinstance(value, float) else repr(value)


def _differs(output: str, here: Counter[tuple[str, ...]], there: Counter[tuple[str, ...]]) -> InternalError:
    def first(rows: Sequence[tuple[str, ...]]) -> str:
        return f"({', '.join(rows[0])})" if rows else "no such row"

    return InternalError(
        "NATIVE_DIFFERS",
        f'rows of "{output}" computed natively are not those that Spark computes: '
        f"{first(sorted(here))[:400]} instead of {first(sorted(there))[:400]}",
        hint="run with the setting spark.anabranch.native: false, and report this with the record",
    )
