"""Opening a ledger: missing, copied, damaged, newer, older, foreign, read-only; and passwords that stay secret."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import shutil
import stat
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, inspect, text

from anabranch.core.epoch import EpochKey
from anabranch.errors import AnabranchError, StateError
from anabranch.store import schema
from anabranch.store.address import parse_address
from anabranch.store.ledger import Ledger


def refused(code: str, work: Callable[[], object]) -> StateError:
    with pytest.raises(StateError) as caught:
        work()
    assert caught.value.code == code, caught.value.message
    assert caught.value.hint
    return caught.value


def test_a_ledger_is_made_once_and_found_again(url: str) -> None:
    refused("LEDGER_MISSING", lambda: Ledger.open(url, create=False))
    refused("LEDGER_MISSING", lambda: Ledger.open(url, create=True, readonly=True))
    with Ledger.open(url, create=True) as made:
        made_id, place = made.ledger_id, made.location()
    for create in (True, False):
        with Ledger.open(url, create=create) as found:
            assert (found.ledger_id, found.location()) == (made_id, place)


def test_looking_for_a_ledger_makes_nothing(tmp_path: Path) -> None:
    refused("LEDGER_MISSING", lambda: Ledger.open(str(tmp_path / "a" / "ledger.db"), create=False))
    assert list(tmp_path.iterdir()) == []


def test_a_path_and_a_url_are_the_same_file(tmp_path: Path) -> None:
    file = tmp_path / "a ledger?.db"
    with (
        Ledger.open(str(file), create=True) as made,
        Ledger.open(f"sqlite:///{file}".replace("?", "%3F"), create=False) as same,
    ):
        assert same.ledger_id == made.ledger_id


@pytest.mark.parametrize(
    "url", ["sqlite://", ":memory:", "mysql://h/d", "postgresql://u:p@ss@h/d", "postgresql://h:x/d"]
)
def test_other_addresses_are_refused(url: str) -> None:
    refused("LEDGER_URL_INVALID", lambda: Ledger.open(url, create=True))


def test_the_ledger_can_share_a_database(tmp_path: Path) -> None:
    file = tmp_path / "catalogue.db"
    engine = create_engine(f"sqlite:///{file}")
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE iceberg_tables (x INT)"))
    engine.dispose()
    refused("LEDGER_MISSING", lambda: Ledger.open(str(file), create=False))
    with Ledger.open(str(file), create=True) as ledger:
        ledger.register("shop", "/data")


def test_sqlite_forces_every_commit_to_disk(tmp_path: Path) -> None:
    with Ledger.open(str(tmp_path / "l.db"), create=True) as ledger:

        def settings(connection: Any) -> list[object]:
            names = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
            return [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in names]

        assert ledger._database.write(settings) == ["wal", 2, 1, 30000]


def test_a_copied_file_is_refused_until_it_is_accepted(tmp_path: Path) -> None:
    old, new = tmp_path / "old.db", tmp_path / "new" / "ledger.db"
    with Ledger.open(str(old), create=True) as made:
        made_id = made.ledger_id
    new.parent.mkdir()
    shutil.copy(old, new)
    for readonly in (False, True):
        error = refused("LEDGER_COPIED", lambda r=readonly: Ledger.open(str(new), create=False, readonly=r))  # type: ignore[misc]
        assert str(old) in error.message
        assert "recover --moved" in (error.hint or "")
    with Ledger.open(str(new), create=False, moved=True) as moved:
        moved.accept_location()
    with Ledger.open(str(new), create=False) as found:
        assert found.ledger_id == made_id
    link = tmp_path / "link.db"
    link.symlink_to(old)
    Ledger.open(str(link), create=False).close()  # another name for the same place


@pytest.mark.postgres
def test_a_copied_schema_is_refused_until_it_is_accepted(postgres_url: str) -> None:
    import psycopg

    Ledger.open(postgres_url, create=True).close()
    name = postgres_url.rpartition("%3D")[2]
    plain = postgres_url.rpartition("&")[0]
    copy = f"{plain}&options=-csearch_path%3D{name}_copy"
    with psycopg.connect(plain, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}_copy")
        try:
            for table in schema.tables.tables:
                connection.execute(f"CREATE TABLE {name}_copy.{table} AS SELECT * FROM {name}.{table}")  # type: ignore[call-overload]
            refused("LEDGER_COPIED", lambda: Ledger.open(copy, create=False))
            with Ledger.open(copy, create=False, moved=True) as moved:
                moved.accept_location()
            Ledger.open(copy, create=False).close()
        finally:
            connection.execute(f"DROP SCHEMA {name}_copy CASCADE")


@pytest.fixture
def filled(tmp_path: Path, channel_of: Callable[[Ledger], Any]) -> Path:
    """A closed SQLite ledger with some epochs."""
    file = tmp_path / "filled.db"
    with Ledger.open(str(file), create=True) as ledger:
        channel = channel_of(ledger)
        lease = channel.lease()
        for epoch in range(12):
            channel.publish(lease, epoch)
        channel.decide(lease, 12)
    assert not Path(f"{file}-wal").exists()
    return file


def everything(file: Path, *, readonly: bool) -> object:
    with Ledger.open(str(file), create=False, readonly=readonly) as ledger:
        shop = ledger.pipeline("shop")
        if shop is None:
            return None
        found = shop.pipeline_id
        keys = [EpochKey(found, "main", 1, n) for n in range(13)]
        return (
            ledger.ledger_id,
            shop,
            ledger.channels(found),
            ledger.epochs(found, limit=100),
            [ledger.epoch(key) for key in keys],
            ledger.open_epochs(found, "main"),
            ledger.cut(found),
            sorted(ledger.retained(found), key=repr),
        )


def test_a_flipped_bit_anywhere_is_found_or_harmless(filled: Path) -> None:
    whole, right = filled.read_bytes(), everything(filled, readonly=False)
    rng = random.Random(7)
    found = 0
    for _ in range(120):
        position, bit = rng.randrange(len(whole)), 1 << rng.randrange(8)
        flipped = bytearray(whole)
        flipped[position] ^= bit
        filled.write_bytes(flipped)
        try:
            assert everything(filled, readonly=False) == right, f"bit {bit} of byte {position}"
        except StateError as error:
            assert error.code in ("LEDGER_DAMAGED", "LEDGER_NOT_WRITABLE", "LEDGER_MISSING"), error.message  # noqa: PT017
            found += 1
        for side in ("-wal", "-shm", "-journal"):
            Path(f"{filled}{side}").unlink(missing_ok=True)
    assert found > 15  # the rest was free room in pages


@pytest.mark.parametrize("keep", [0, 10, 4096, 0.5, 0.9])
def test_a_truncated_file_is_refused(filled: Path, keep: float) -> None:
    size = filled.stat().st_size
    os.truncate(filled, int(size * keep) if 0 < keep < 1 else int(keep))
    refused("LEDGER_DAMAGED", lambda: Ledger.open(str(filled), create=True))
    refused("LEDGER_DAMAGED", lambda: everything(filled, readonly=True))


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"
    file.write_text("notes\n" * 1000)
    for readonly in (False, True):
        refused("LEDGER_DAMAGED", lambda r=readonly: Ledger.open(str(file), create=True, readonly=r))  # type: ignore[misc]
    assert file.read_text() == "notes\n" * 1000


def test_a_ledger_that_is_removed_under_a_writer_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"
    with Ledger.open(str(file), create=True) as ledger:
        ledger.register("one", "/data")
        file.rename(tmp_path / "away.db")
        refused("LEDGER_MISSING", lambda: ledger.register("two", "/data"))
        Ledger.open(str(file), create=True).close()
        refused("LEDGER_MISSING", lambda: ledger.register("two", "/data"))


@contextlib.contextmanager
def without_privileges(*paths: Path) -> Iterator[None]:
    """As a user who may only read these paths."""
    root = os.geteuid() == 0
    modes = [path.stat().st_mode for path in paths]
    for path in paths:
        path.chmod(stat.S_IMODE(path.stat().st_mode) & ~0o222 | 0o444)
    for parent in paths[0].parents if root else ():
        if parent.stat().st_uid == 0 and parent.name.startswith(("pytest-", "popen-", "test_")):
            parent.chmod(0o755)
    try:
        if root:
            os.seteuid(65534)
        yield
    finally:
        if root:
            os.seteuid(0)
        for path, mode in zip(paths, modes, strict=True):
            path.chmod(mode)


def test_a_folder_that_may_only_be_read_can_be_read(filled: Path) -> None:
    right = everything(filled, readonly=True)
    with without_privileges(filled, filled.parent):
        assert everything(filled, readonly=True) == right
        error = refused("LEDGER_NOT_WRITABLE", lambda: Ledger.open(str(filled), create=False))
        assert str(filled) in error.message
        new = filled.parent / "new.db"
        assert str(new) in refused("LEDGER_NOT_WRITABLE", lambda: Ledger.open(str(new), create=True)).message
    with without_privileges(filled):
        refused("LEDGER_NOT_WRITABLE", lambda: Ledger.open(str(filled), create=True))
    assert sorted(p.name for p in filled.parent.iterdir()) == ["filled.db"]


def test_a_folder_that_may_only_be_read_can_be_read_beside_a_writer(filled: Path) -> None:
    with Ledger.open(str(filled), create=False) as writer:
        writer.register("second", "/data")
        sides = [Path(f"{filled}{side}") for side in ("-wal", "-shm")]
        with (
            without_privileges(filled, filled.parent, *sides),
            Ledger.open(str(filled), create=False, readonly=True) as reader,
        ):
            assert reader.pipeline("second") is not None


def test_reading_makes_no_files_and_sees_what_a_writer_does(filled: Path) -> None:
    def names() -> list[str]:
        return sorted(p.name for p in filled.parent.iterdir())

    with Ledger.open(str(filled), create=False, readonly=True) as reader:
        assert reader.pipeline("shop") is not None
        assert names() == ["filled.db"]
        with Ledger.open(str(filled), create=False) as writer:
            writer.register("second", "/data")
            assert reader.pipeline("second") is not None
        assert names() == ["filled.db"]
        assert reader.pipeline("second") is not None


def test_a_readonly_ledger_refuses_to_write(channel: Any, url: str) -> None:
    key = channel.publish(channel.lease(), 0)
    with Ledger.open(url, create=False, readonly=True) as reader:
        assert reader.epoch(key) == channel.stored(key)
        assert reader.cut(channel.pipeline_id) == channel.ledger.cut(channel.pipeline_id)
        refused("LEDGER_NOT_WRITABLE", lambda: reader.register("x", "/x"))
        refused("LEDGER_NOT_WRITABLE", lambda: reader.acquire(channel.pipeline_id, "main", seconds=1))


# Versions


def as_next_version(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    more = lines or (
        "ALTER TABLE anabranch_pipelines ADD COLUMN note TEXT",
        "UPDATE anabranch_pipelines SET note = 'x'",
    )
    monkeypatch.setattr(
        schema, "STEPS", (*schema.STEPS, schema.Step(schema.STEPS[-1].to + 1, schema.statements(*more)))
    )


def notes(ledger: Ledger) -> list[str]:
    read = ledger._database.read
    return list(read(lambda c: c.execute(text("SELECT note FROM anabranch_pipelines")).scalars().all()))


def test_an_older_ledger_is_brought_forward(channel: Any, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    key = channel.publish(channel.lease(), 0)
    before = channel.stored(key)
    channel.ledger.close()
    as_next_version(monkeypatch)
    refused("LEDGER_OLDER", lambda: Ledger.open(url, create=False, readonly=True))
    for _ in range(2):
        with Ledger.open(url, create=False) as ledger:
            assert notes(ledger) == ["x"]
            assert ledger.epoch(key) == before


def test_a_new_ledger_goes_through_every_step(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    as_next_version(monkeypatch)
    with Ledger.open(url, create=True) as ledger:
        assert notes(ledger) == []


def test_a_step_that_fails_leaves_the_ledger_as_it_was(channel: Any, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    channel.ledger.close()
    with monkeypatch.context() as patch:
        as_next_version(patch, "ALTER TABLE anabranch_pipelines ADD COLUMN note TEXT", "UPDATE nowhere SET x = 1")
        with pytest.raises(Exception, match="nowhere"):
            Ledger.open(url, create=False)
    with Ledger.open(url, create=False) as ledger:
        columns = ledger._database.read(lambda c: {x["name"] for x in inspect(c).get_columns("anabranch_pipelines")})
        assert "note" not in columns


def test_a_newer_ledger_is_refused_at_once_and_while_running(
    channel: Any, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = channel.lease()
    with monkeypatch.context() as patch:
        as_next_version(patch)
        Ledger.open(url, create=False).close()
    for readonly in (False, True):
        refused("LEDGER_NEWER", lambda r=readonly: Ledger.open(url, create=True, readonly=r))  # type: ignore[misc]
    refused("LEDGER_NEWER", lambda: channel.decide(lease, 0))
    assert channel.ledger.epoch(channel.key(0)) is None


def test_the_steps_end_at_the_tables_the_code_uses(ledger: Ledger) -> None:
    def columns(connection: Any) -> dict[str, list[tuple[str, object]]]:
        look = inspect(connection)
        return {t: [(c["name"], c["type"]._type_affinity) for c in look.get_columns(t)] for t in look.get_table_names()}

    wanted = {
        name: [(column.name, column.type._type_affinity) for column in table.columns]
        for name, table in schema.tables.tables.items()
    }
    assert ledger._database.read(columns) == wanted


# Postgres


@pytest.mark.postgres
def test_a_broken_connection_is_replaced(postgres_url: str, channel_of: Callable[[Ledger], Any]) -> None:
    with Ledger.open(postgres_url, create=True) as ledger:
        channel = channel_of(ledger)
        lease = channel.lease()
        steps: list[Callable[[], object]] = [
            lambda: channel.decide(lease, 0),
            lambda: channel.apply(lease, channel.key(0)),
            lambda: ledger.publish(lease, channel.key(0), window=0, times={}),
            lambda: ledger.renew(lease),
        ]
        for step in steps:
            cut_connections(postgres_url)
            step()
        assert ledger.cut(channel.pipeline_id).epochs == {"main": 0}


@pytest.mark.postgres
@pytest.mark.parametrize("landed", [True, False])
def test_a_lost_answer_to_a_decision_is_looked_up(
    postgres_url: str, channel_of: Callable[[Ledger], Any], monkeypatch: pytest.MonkeyPatch, landed: bool
) -> None:
    import psycopg

    with Ledger.open(postgres_url, create=True) as ledger:
        channel = channel_of(ledger)
        lease = channel.lease()
        real = psycopg.Connection.commit
        lost = []

        def commit(connection: psycopg.Connection[Any]) -> None:
            if not lost:
                lost.append(connection)
                if landed:
                    real(connection)
                cut_connections(postgres_url)
                connection.execute("SELECT 1")  # the connection is gone, whatever became of the commit
            real(connection)

        monkeypatch.setattr(psycopg.Connection, "commit", commit)
        channel.decide(lease, 0)
        assert lost
        assert channel.stored(channel.key(0)).receipts == {r.sink: r for r in channel.receipts(0)}


def cut_connections(url: str) -> None:
    import psycopg

    with psycopg.Connection.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'anabranch'"
        )


SECRET = "hunter2/%@ x"


@pytest.mark.postgres
@pytest.mark.parametrize(
    "address",
    [
        "postgresql://ann:hunter2%2F%25%40%20x@127.0.0.1:1/shop",
        "postgresql://ann@127.0.0.1:1/shop?password=hunter2%2F%25%40%20x",
        "postgresql://ann:hunter2/%@ x@127.0.0.1:1/shop",
        "postgresql://ann:hunter2@x:hunter2/shop",
    ],
)
def test_a_password_is_never_shown(address: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(AnabranchError) as caught:
        Ledger.open(address, create=True)
    assert caught.value.code in ("LEDGER_UNREACHABLE", "LEDGER_URL_INVALID")
    shown = [caplog.text, repr(caught.value), str(caught.value.as_record())]
    shown += traceback.format_exception(caught.value)
    assert "hunter2" not in "".join(line for line in shown if address not in line)
    assert "hunter2" not in caplog.text + str(caught.value.as_record()) + repr(caught.value)


@pytest.mark.postgres
def test_a_password_is_in_no_name_of_an_open_ledger(postgres_url: str) -> None:
    secret = postgres_url.replace("postgres@", "postgres:hunter2@")
    with Ledger.open(secret, create=True) as ledger:
        things = (ledger, ledger._database.address, ledger._database._engine, ledger.location())
        assert "hunter2" not in "".join(map(repr, things))
        error = refused("LEDGER_FOREIGN", lambda: (ledger.register("a", "/1"), ledger.register("a", "/2")))
        assert "hunter2" not in "".join(traceback.format_exception(error))
    assert "hunter2" not in repr(parse_address(secret))
