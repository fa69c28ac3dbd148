"""Profile a table by a job of its own, from its files, without Spark and without the run that writes it.

1. range     what to look at is fixed: versions of the table, at a published cut
2. save      the range is in the history before a row is read; a job that died is taken up with the range it saved
3. look      the rows are read in batches; memory does not grow with them
4. finish    the profile and the end of the job are written together
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from anabranch import read
from anabranch.connectors.delta_added import added_dataset, rows_gone
from anabranch.connectors.delta_versions import version_gone
from anabranch.connectors.registry import read_dataset
from anabranch.core.epoch import CutTable, EpochKey
from anabranch.core.profile import TableProfile
from anabranch.engine.observe import profile_of
from anabranch.errors import ProjectError, SinkError, did_you_mean
from anabranch.load.project import Project, read_project
from anabranch.store.profiles import Job, Jobs

if TYPE_CHECKING:
    import pyarrow.dataset as ds

#: Rows that are profiled at once.
_BATCH_ROWS = 1 << 16
#: A job says that it is alive this often, in seconds.
_ALIVE = 5.0
_OF_EPOCH = "epoch:"


@dataclass(frozen=True, slots=True)
class Asked:
    """What a job shall look at, as it was said: versions are numbers, or `epoch:N`."""

    first: str | None = None
    last: str | None = None
    columns: tuple[str, ...] = ()
    since_last: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """A finished job and its profile."""

    job: Job
    profile: TableProfile


def profile_table(project: str | Path, dataset: str, asked: Asked, tell: Callable[[Job], None]) -> Found | None:
    """Do a job and say what was found; None when nothing is new. `tell` is called once the range is saved."""
    known = read_project(Path(project))
    table = read.cut(project).table(dataset)
    _check_columns(dataset, table, asked.columns)
    covers = _covers(known, table, asked)
    jobs = Jobs(Path(known.storage) / "_anabranch" / "history.db")

    def plan(before: Job | None) -> tuple[str | None, str] | None:
        first, last = covers
        if not asked.since_last or before is None:
            return first, last
        _needs_delta(table, "--since-last")
        return (str(int(before.last) + 1), last) if int(before.last) < int(last) else None

    job = jobs.begin(dataset, json.dumps(asdict(asked)), asked.columns, plan)  # 1, 2
    if job is None:
        return None
    tell(job)
    try:
        profile = _look(jobs, job, table)  # 3
    except BaseException as error:
        jobs.fail(job, f"{type(error).__name__}: {error}")
        raise
    jobs.finish(job, profile)  # 4
    return Found(job, profile)


def _look(jobs: Jobs, job: Job, table: CutTable) -> TableProfile:
    profile, said = TableProfile(), time.monotonic()
    for batch in _batches(job, table):
        profile += profile_of(pa.Table.from_batches([batch]), job.columns)
        if time.monotonic() - said > _ALIVE:
            jobs.alive(job)
            said = time.monotonic()
    return profile


def _batches(job: Job, table: CutTable) -> Iterator[pa.RecordBatch]:
    rows = _rows(job, table)
    try:
        # Little is read ahead: rows wait for their profile, not the other way round.
        yield from rows.to_batches(
            columns=list(job.columns) or None, batch_size=_BATCH_ROWS, batch_readahead=2, fragment_readahead=1
        )
    except FileNotFoundError as error:
        if job.first is None:
            raise version_gone(table.location, job.last, str(error)) from error
        raise rows_gone(job.dataset, int(job.first), int(job.last), str(error), None) from error
    except (pa.ArrowException, OSError) as error:
        raise SinkError(
            "TABLE_UNREADABLE",
            f"{table.location} cannot be read: {error}",
            hint="check that the storage is there and that the files are whole, then run the same command again",
        ) from error


def _rows(job: Job, table: CutTable) -> ds.Dataset:
    if job.first is None:
        return read_dataset(table.format, table.location, job.last)
    return added_dataset(job.dataset, table.location, int(job.first), int(job.last))


def _check_columns(dataset: str, table: CutTable, columns: Sequence[str]) -> None:
    if not columns:
        return
    known = read_dataset(table.format, table.location, table.version).schema.names
    for name in columns:
        if name not in known:
            hint = did_you_mean(name, known) or f"columns there: {', '.join(known)}"
            raise ProjectError("PROFILE_COLUMN_UNKNOWN", f'"{dataset}" has no column "{name}"', hint=hint)


def _covers(project: Project, table: CutTable, asked: Asked) -> tuple[str | None, str]:
    """The versions that were asked for; the last published one is the last there is."""
    if asked.first is None and asked.last is None:
        return None, table.version
    _needs_delta(table, "--from and --to")
    last = int(table.version) if asked.last is None else _version(project, table, asked.last, first=False)
    if last > int(table.version):
        raise _bad_range(f"version {last} is not published: {table.name} stands at {table.version}")
    if asked.first is None:
        return None, str(last)
    first = _version(project, table, asked.first, first=True)
    if first > last:
        raise _bad_range(f"it begins with version {first} and ends with {last}")
    return str(first), str(last)


def _version(project: Project, table: CutTable, said: str, *, first: bool) -> int:
    """The version that is meant; an epoch begins after the version that the one before it left."""
    try:
        number = int(said.removeprefix(_OF_EPOCH))
    except ValueError:
        raise _bad_range(f'"{said}" is neither a version nor an epoch') from None
    if number < 0:
        raise _bad_range(f"{said} is less than 0")
    if not said.startswith(_OF_EPOCH):
        return number
    own = _left_by(project, table, number)
    if own is None:
        raise _bad_range(f"epoch {number} of {table.channel} was not published, or is forgotten")
    before = _left_by(project, table, number - 1) if first else None
    return own if before is None else before + 1


def _left_by(project: Project, table: CutTable, epoch: int) -> int | None:
    """The version of a table after an epoch; None if the ledger does not know it."""
    with read.open_ledger(project) as (ledger, pipeline):
        for channel in ledger.channels(pipeline.pipeline_id):
            if channel.channel == table.channel:
                key = EpochKey(pipeline.pipeline_id, channel.channel, channel.generation, epoch)
                record = ledger.epoch(key)
                applied = record.applied.get(table.name) if record else None
                return int(applied.version) if applied else None
    return None


def _needs_delta(table: CutTable, what: str) -> None:
    if table.format != "delta":
        raise ProjectError(
            "PROFILE_RANGE_UNSUPPORTED",
            f'"{table.name}" is a table of format {table.format}: which rows a version added can be told of Delta only',
            hint=f"profile the whole table: leave {what} out",
        )


def _bad_range(why: str) -> ProjectError:
    return ProjectError(
        "PROFILE_BAD_RANGE",
        f"no range to profile: {why}",
        hint="say versions as numbers, or epoch:N; anabranch epochs lists the versions of each epoch",
    )
