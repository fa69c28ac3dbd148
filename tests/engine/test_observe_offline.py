"""Jobs that profile a table from its files: a range that is saved first, one result, no gap and no overlap."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from anabranch.cli.main import main
from anabranch.connectors.delta_log import commit_path
from anabranch.core.profile import TableProfile
from anabranch.engine import observe_offline
from anabranch.engine.observe import profile_of
from anabranch.engine.observe_offline import Asked, Found, profile_table
from anabranch.errors import ProjectError, SinkError, StateError
from anabranch.store.profiles import Job, Jobs, profiles_of
from observed_table import Shop

_SCHEMA = pa.schema([("id", pa.int64()), ("region", pa.string()), ("amount", pa.float64())])


def _orders(*ids: int) -> pa.Table:
    rows = {"id": list(ids), "region": [("eu", "us", None)[i % 3] for i in ids], "amount": [i / 4 for i in ids]}
    return pa.table(rows, schema=_SCHEMA)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """Versions 1 to 3 are the epochs 0 to 2."""
    made = Shop(tmp_path / "shop", _SCHEMA, observe=None, partition_by=("region",))
    made.epochs([_orders(1, 2, 3)], [_orders(4, 5)], [_orders(6)])
    return made


def _profiled(shop: Shop, **asked: Any) -> Found | None:
    return profile_table(shop.folder, "orders", Asked(**asked), lambda job: None)


def _found(shop: Shop, **asked: Any) -> Found:
    found = _profiled(shop, **asked)
    assert found is not None
    return found


def _jobs(shop: Shop) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(shop.history.path)) as connection:
        return connection.execute("SELECT first, last, state FROM profile_jobs ORDER BY started").fetchall()


def test_the_whole_table_at_the_published_version(shop: Shop) -> None:
    found = _found(shop)
    assert (found.job.first, found.job.last) == (None, "3")
    assert found.profile == profile_of(_orders(1, 2, 3, 4, 5, 6))
    assert [one.profile for one in profiles_of(shop.history, "orders")] == [found.profile]


@pytest.mark.parametrize(
    ("asked", "rows"),
    [
        ({"first": "2"}, (4, 5, 6)),
        ({"first": "2", "last": "2"}, (4, 5)),
        ({"first": "epoch:1", "last": "epoch:1"}, (4, 5)),
        ({"first": "epoch:0", "last": "epoch:1"}, (1, 2, 3, 4, 5)),
        ({"last": "1"}, (1, 2, 3)),
        ({"first": "0", "last": "0"}, ()),
    ],
    ids=str,
)
def test_only_the_rows_that_a_range_added(shop: Shop, asked: dict[str, str], rows: tuple[int, ...]) -> None:
    found = _found(shop, **asked).profile
    assert found == (profile_of(_orders(*rows)) if rows else TableProfile())


def test_files_put_together_are_no_new_rows(shop: Shop) -> None:
    _found(shop)
    DeltaTable(str(shop.location)).optimize.compact()
    shop.epochs([_orders(7)])
    assert _found(shop, since_last=True).profile == profile_of(_orders(7))


def test_since_last_goes_on_without_gap_or_overlap(shop: Shop) -> None:
    whole = _found(shop, since_last=True)  # the first time, all of it
    assert _profiled(shop, since_last=True) is None
    total = whole.profile
    for number in range(7, 12):
        shop.epochs([_orders(number)])
        if number % 2 == 0:
            total += _found(shop, since_last=True).profile
    total += _found(shop, since_last=True).profile
    assert _profiled(shop, since_last=True) is None
    assert total == profile_of(_orders(*range(1, 12)))
    assert [(first, last) for first, last, _ in _jobs(shop)] == [(None, "3"), ("4", "5"), ("6", "7"), ("8", "8")]


def test_columns_have_a_last_of_their_own(shop: Shop) -> None:
    _found(shop, since_last=True, columns=("id",))
    found = _found(shop, since_last=True, columns=("amount", "region"))
    assert set(found.profile.columns) == {"amount", "region"}
    assert found.profile.rows == 6


def test_a_job_that_failed_looks_at_the_same_again(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> TableProfile:
        raise StateError("DISK_FULL", "no room")

    with monkeypatch.context() as broken:
        broken.setattr(observe_offline, "profile_of", full)
        with pytest.raises(StateError):
            _profiled(shop, since_last=True)
    shop.epochs([_orders(7, 8)])
    again = _found(shop, since_last=True)
    assert again.job.again
    assert again.profile == profile_of(_orders(1, 2, 3, 4, 5, 6))
    assert _jobs(shop) == [(None, "3", "done")]
    assert len(profiles_of(shop.history, "orders")) == 1
    assert _found(shop, since_last=True).profile == profile_of(_orders(7, 8))


_KILLED = """
import os, signal, sys
from anabranch.engine import observe_offline
from anabranch.engine.observe_offline import Asked, profile_table
observe_offline.profile_of = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
profile_table(sys.argv[1], "orders", Asked(since_last=True), lambda job: None)
"""


def test_a_job_that_was_killed_looks_at_the_same_again(shop: Shop) -> None:
    killed = subprocess.run([sys.executable, "-c", _KILLED, str(shop.folder)], check=False, timeout=240)
    assert killed.returncode == -signal.SIGKILL
    assert _jobs(shop) == [(None, "3", "running")]
    shop.epochs([_orders(7)])
    assert _found(shop, since_last=True).profile == profile_of(_orders(1, 2, 3, 4, 5, 6))
    assert _jobs(shop) == [(None, "3", "done")]


def test_two_at_once(shop: Shop) -> None:
    jobs = Jobs(shop.history.path)
    job = jobs.begin("orders", "mine", (), lambda last: ("1", "2"))
    assert job is not None
    with pytest.raises(StateError, match=f"process {os.getpid()}") as refused:
        _profiled(shop)
    assert refused.value.code == "PROFILE_RUNNING"
    with closing(sqlite3.connect(shop.history.path)) as connection:
        elsewhere = json.dumps({"host": "elsewhere", "boot": "b", "pid": 1, "started": "1"})
        connection.execute("UPDATE profile_jobs SET process = ?, seen = seen - 100", (elsewhere,))
        connection.commit()
    _found(shop)  # one on another machine that was not seen for long is given up
    assert _jobs(shop) == [("1", "2", "given up"), (None, "3", "done")]
    with pytest.raises(StateError) as late:
        jobs.finish(job, TableProfile())
    assert late.value.code == "PROFILE_TAKEN_OVER"
    assert len(profiles_of(shop.history, "orders")) == 1


def test_rows_that_vacuum_removed(shop: Shop) -> None:
    _found(shop, last="1")
    second = set(DeltaTable(str(shop.location), version=2).file_uris())
    for path in second - set(DeltaTable(str(shop.location), version=1).file_uris()):
        Path(path).unlink()
    with pytest.raises(StateError, match="2 of their files are gone") as gone:
        _profiled(shop, since_last=True)
    assert gone.value.code == "PROFILE_ROWS_GONE"
    assert "anabranch profile orders --from 3" in (gone.value.hint or "")
    assert _found(shop, first="3").profile == profile_of(_orders(6))
    shop.epochs([_orders(7)])
    assert _found(shop, since_last=True).profile == profile_of(_orders(7))  # the hole was told, and is left behind


def test_a_log_that_does_not_reach_back(shop: Shop) -> None:
    (shop.location / commit_path(1)).unlink()
    with pytest.raises(StateError) as gone:
        _profiled(shop, first="1")
    assert gone.value.code in ("PROFILE_ROWS_GONE", "VERSION_GONE")


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"first": "9"}, "PROFILE_BAD_RANGE"),
        ({"first": "2", "last": "1"}, "PROFILE_BAD_RANGE"),
        ({"last": "4"}, "PROFILE_BAD_RANGE"),
        ({"first": "two"}, "PROFILE_BAD_RANGE"),
        ({"first": "-1"}, "PROFILE_BAD_RANGE"),
        ({"first": "epoch:7"}, "PROFILE_BAD_RANGE"),
        ({"columns": ("regoin",)}, "PROFILE_COLUMN_UNKNOWN"),
    ],
    ids=str,
)
def test_what_cannot_be_meant_is_refused_and_saves_nothing(shop: Shop, asked: dict[str, Any], code: str) -> None:
    with pytest.raises(ProjectError) as refused:
        _profiled(shop, **asked)
    assert refused.value.code == code
    assert refused.value.hint
    assert _jobs(shop) == []


def test_rows_of_others_are_seen_as_well(shop: Shop, tmp_path: Path) -> None:
    """A range that foreign writers have added to, with a partition that is null and files of their own names."""
    write_deltalake(str(shop.location), _orders(100, 101, 102), mode="append")
    shop.epochs([_orders(7)])
    found = _found(shop, first="4")
    assert found.profile == profile_of(_orders(100, 101, 102, 7))
    assert found.profile.columns["region"].nulls == 1


def test_a_file_that_is_damaged(shop: Shop) -> None:
    damaged = next(shop.location.glob("region=us/*.parquet"))
    whole = damaged.read_bytes()
    damaged.write_bytes(b"no parquet at all")
    with pytest.raises(SinkError) as unreadable:
        _profiled(shop)
    assert unreadable.value.code == "TABLE_UNREADABLE"
    assert _jobs(shop) == [(None, "3", "failed")]
    damaged.write_bytes(whole)
    assert _found(shop).job.again


def test_the_verb_and_its_history(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    base = ["-p", str(shop.folder)]
    assert main(["profile", "orders", *base]) == 0
    text = capsys.readouterr()
    assert "orders: 6 rows, whole table at version 3" in text.out
    assert "2 (33.3%)" in text.out
    shop.epochs([_orders(7)])
    assert main(["profile", "orders", "--since-last", "--json", *base]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["from"], said["to"], said["rows"]) == ("4", "4", 1)
    assert said["columns"]["id"]["min"] == "7"
    assert main(["profile", "orders", "--since-last", *base]) == 0
    assert "nothing new" in capsys.readouterr().out
    assert main(["profile", "orders", "--history", "--columns", "id", "--json", *base]) == 0
    moved = json.loads(capsys.readouterr().out)
    assert [(row["rows"], row["min"], row["max"]) for row in moved] == [(6, "1", "6"), (1, "7", "7")]
    assert main(["profile", "orders", "--since-last", "--from", "1", *base]) == 2
    assert main(["profile", "ordres", *base]) == 2
    assert 'did you mean "orders"' in capsys.readouterr().err


def test_memory_is_bounded_by_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One file of many rows is never in memory as a whole."""
    shop = Shop(tmp_path, _SCHEMA, observe=None)
    shop.epochs([_orders(*range(200_000))])
    sizes: list[int] = []
    real = profile_of

    def counted(rows: pa.Table, columns: tuple[str, ...]) -> TableProfile:
        sizes.append(rows.num_rows)
        return real(rows, columns)

    monkeypatch.setattr(observe_offline, "profile_of", counted)
    assert _found(shop).profile.rows == 200_000
    assert max(sizes) <= 1 << 16
    assert pq.read_metadata(next(shop.location.glob("*.parquet"))).num_rows == 200_000


def test_a_job_says_what_it_covers() -> None:
    assert Job("j", "orders", "3", "3", ()).in_words() == "rows added by version 3"
