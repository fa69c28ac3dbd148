"""Profiles of columns in the history: those of epochs, which a run gives, and those of jobs, with the range they cover.

    history = History.of(project.storage)
    profiles_of(history, "silver.orders", limit=1)      # the newest; none if nobody has looked

A job saves what it is going to look at before it looks. One that died is found by the next that is asked the same, and
looks at the same again: there is one result, of the range that was saved.
"""

from __future__ import annotations

import json
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from anabranch.core.events_data import ColumnsProfiled
from anabranch.core.profile import TableProfile
from anabranch.errors import StateError
from anabranch.store.history import History
from anabranch.store.history_file import connect_to_write, is_damaged
from anabranch.store.process import Holder, this_process

#: Profiles that are kept of a dataset, of its epochs and of its jobs each; older ones go.
KEPT = 1_000
#: A job on another machine that was not seen for so long, in seconds, counts as dead.
_UNSEEN = 60.0

_EPOCH, _JOB = "epoch", "job"
_RUNNING, _DONE, _FAILED, _LEFT = "running", "done", "failed", "given up"


@dataclass(frozen=True, slots=True)
class StoredProfile:
    """A profile and what it is one of: `origin` is `epoch` or `job`, `name` says which."""

    dataset: str
    origin: str
    name: str
    at: float
    profile: TableProfile


@dataclass(frozen=True, slots=True)
class Job:
    """The versions `first` to `last` of a dataset, both with it; without `first` the whole table at `last`."""

    job: str
    dataset: str
    first: str | None
    last: str
    columns: tuple[str, ...]
    again: bool = False  # it was begun before, and is done once more

    def in_words(self) -> str:
        """
        >>> Job("", "orders", "3", "7", ()).in_words(), Job("", "orders", None, "7", ()).in_words()
        ('rows added by versions 3 to 7', 'whole table at version 7')
        """
        if self.first is None:
            return f"whole table at version {self.last}"
        versions = f"version {self.last}" if self.first == self.last else f"versions {self.first} to {self.last}"
        return f"rows added by {versions}"


#: Says what a new job covers, given the last one that was finished; None when there is nothing new.
Plan = Callable[[Job | None], tuple[str | None, str] | None]


def profiles_of(history: History, dataset: str, *, origin: str | None = None, limit: int = 20) -> list[StoredProfile]:
    """Profiles of a dataset, the newest `limit` of them, oldest first."""
    query = (
        "SELECT dataset, origin, name, at, profile FROM profiles WHERE dataset = ?1 AND (?2 IS NULL OR origin = ?2) "
        "ORDER BY at DESC, id DESC LIMIT ?3"
    )
    rows = history.kept("profiles", query, dataset, origin, limit)
    return [
        StoredProfile(**{**dict(row), "profile": TableProfile.from_record(json.loads(row["profile"]))})
        for row in reversed(rows)
    ]


def nulls_over_time(history: History, dataset: str, *, limit: int = 100) -> list[tuple[float, dict[str, float]]]:
    """The share of nulls of each column, epoch by epoch, oldest first."""
    query = "SELECT at, profile FROM profiles WHERE dataset = ? AND origin = ? ORDER BY id DESC LIMIT ?"
    found = [(row["at"], json.loads(row["profile"])) for row in history.kept("profiles", query, dataset, _EPOCH, limit)]
    return [
        (at, {name: c.get("nulls", 0) / c["rows"] for name, c in said["columns"].items() if c["rows"]})
        for at, said in reversed(found)
    ]


def keep_epoch_profile(connection: sqlite3.Connection, at: float, event: ColumnsProfiled) -> None:
    """Keep the profile of an epoch, in the place of one of the same epoch."""
    name = f"{event.channel} epoch {event.epoch}"
    if event.generation > 1:
        name += f" (generation {event.generation})"
    _keep(connection, event.dataset, _EPOCH, name, at, event.profile)


def _keep(
    connection: sqlite3.Connection, dataset: str, origin: str, name: str, at: float, profile: TableProfile
) -> None:
    connection.execute(
        "INSERT INTO profiles (dataset, origin, name, at, profile) VALUES (?, ?, ?, ?, ?) "
        "ON CONFLICT (dataset, origin, name) DO UPDATE SET at = excluded.at, profile = excluded.profile",
        (dataset, origin, name, at, json.dumps(profile.as_record(), separators=(",", ":"))),
    )
    connection.execute(
        "DELETE FROM profiles WHERE dataset = ?1 AND origin = ?2 AND id <= (SELECT id FROM profiles "
        "WHERE dataset = ?1 AND origin = ?2 ORDER BY id DESC LIMIT 1 OFFSET ?3)",
        (dataset, origin, KEPT),
    )


@dataclass(frozen=True, slots=True)
class Jobs:
    """The jobs of a project, in its history."""

    path: Path

    def begin(self, dataset: str, asked: str, columns: Sequence[str], plan: Plan) -> Job | None:
        """Save what a job is to cover. One that was asked the same and did not end is taken up again, as it was saved.

        None when there is nothing new. Other jobs of the dataset that did not end are given up.
        """
        me = json.dumps(asdict(this_process()))
        with self._changing() as connection:
            query = "SELECT * FROM profile_jobs WHERE dataset = ? AND state IN (?, ?) ORDER BY started"
            unfinished = connection.execute(query, (dataset, _RUNNING, _FAILED)).fetchall()
            for row in unfinished:
                if row["state"] == _RUNNING and _is_alive(row):
                    raise _running(dataset, row)
            now = time.time()
            same = next((row for row in unfinished if row["asked"] == asked), None)
            if same:
                job = Job(same["job"], dataset, same["first"], same["last"], tuple(columns), again=True)
                connection.execute(
                    "UPDATE profile_jobs SET state = ?, process = ?, seen = ?, problem = NULL WHERE job = ?",
                    (_RUNNING, me, now, job.job),
                )
            else:
                covers = plan(_last_done(connection, dataset, columns))
                if covers is None:
                    return None
                job = Job(uuid.uuid4().hex, dataset, *covers, tuple(columns))
                connection.execute(
                    "INSERT INTO profile_jobs "
                    "(job, dataset, first, last, columns, asked, state, process, started, seen) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (job.job, dataset, *covers, json.dumps(list(columns)), asked, _RUNNING, me, now, now),
                )
            connection.execute(
                "UPDATE profile_jobs SET state = ?, ended = ? WHERE dataset = ? AND state IN (?, ?) AND job <> ?",
                (_LEFT, now, dataset, _RUNNING, _FAILED, job.job),
            )
        return job

    def alive(self, job: Job) -> None:
        """Say that the job is being worked on."""
        with self._changing() as connection:
            connection.execute("UPDATE profile_jobs SET seen = ? WHERE job = ?", (time.time(), job.job))

    def finish(self, job: Job, profile: TableProfile) -> None:
        """Keep what was found and end the job, both or none."""
        with self._changing() as connection:
            now, me = time.time(), json.dumps(asdict(this_process()))
            ended = connection.execute(
                "UPDATE profile_jobs SET state = ?, ended = ? WHERE job = ? AND state = ? AND process = ?",
                (_DONE, now, job.job, _RUNNING, me),
            )
            if ended.rowcount == 0:
                raise StateError(
                    "PROFILE_TAKEN_OVER",
                    f'another process took the profile of "{job.dataset}" over while this one was not seen',
                    hint=f"its result is in the history: anabranch profile {job.dataset} --history",
                )
            _keep(connection, job.dataset, _JOB, f"{job.in_words()} ({job.job[:8]})", now, profile)

    def fail(self, job: Job, problem: str) -> None:
        """End the job without a result; who asks the same again looks at the same again."""
        with self._changing() as connection:
            query = "UPDATE profile_jobs SET state = ?, problem = ? WHERE job = ? AND state = ?"
            connection.execute(query, (_FAILED, problem, job.job, _RUNNING))

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        try:
            connection = connect_to_write(self.path)
        except sqlite3.Error as error:
            raise _unwritable(self.path, error) from error
        connection.row_factory = sqlite3.Row
        try:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise _unwritable(self.path, error) from error
        finally:
            connection.close()  # what was not committed is undone


def _last_done(connection: sqlite3.Connection, dataset: str, columns: Sequence[str]) -> Job | None:
    query = (
        "SELECT * FROM profile_jobs WHERE dataset = ? AND columns = ? AND state = ? "
        "ORDER BY ended DESC, rowid DESC LIMIT 1"
    )
    row = connection.execute(query, (dataset, json.dumps(list(columns)), _DONE)).fetchone()
    return Job(row["job"], dataset, row["first"], row["last"], tuple(columns)) if row else None


def _is_alive(row: sqlite3.Row) -> bool:
    holder = Holder(**json.loads(row["process"]))
    return not holder.is_gone() if holder.is_here() else time.time() - row["seen"] < _UNSEEN


def _running(dataset: str, row: sqlite3.Row) -> StateError:
    holder = Holder(**json.loads(row["process"]))
    return StateError(
        "PROFILE_RUNNING",
        f'"{dataset}" is being profiled already, by process {holder.pid} on {holder.host}',
        hint="wait for it, or end that process and run this again",
    )


def _unwritable(path: Path, error: sqlite3.Error) -> StateError:
    if is_damaged(error):
        return StateError(
            "HISTORY_DAMAGED",
            f"{path} is damaged: {error}",
            hint=f"nothing but looking back needs it: mv {path} {path}.damaged, and the next run begins a new one",
        )
    return StateError(
        "HISTORY_UNWRITABLE",
        f"{path} cannot be written: {error}",
        hint="look at the file and its folder: a job needs to save there what it is going to look at",
    )
