"""SQLite tables as outputs: an epoch's rows and its number are written in one transaction, so it is there once."""

import json
import sqlite3
from contextlib import closing, contextmanager

from anabranch.connectors.spooled_sink import SpooledSink
from anabranch.connectors.taken import version_of
from anabranch.core import crash
from anabranch.core.epoch import Applied
from anabranch.core.formats import Capabilities, Format
from anabranch.errors import SinkError

SQLITE = Format(
    "sqlite",
    opens="anabranch_sqlite:SqliteSink",
    capabilities=Capabilities(True, "a row in anabranch_epochs, in the same transaction", False, "any"),
    required=("file",),
    place="sqlite://{name}",
    spooled=True,  # rows wait below the storage until `apply` has taken them
)


class SqliteSink(SpooledSink):
    format, capabilities = "sqlite", SQLITE.capabilities

    def prepare(self, schema):
        super().prepare(schema)
        with self._open() as db:
            db.execute("CREATE TABLE IF NOT EXISTS anabranch_epochs (id TEXT PRIMARY KEY, epoch INT, version TEXT)")
            db.execute(f'CREATE TABLE IF NOT EXISTS "{self.name}" ({_list(schema.names)})')
            known = [column for _, column, *_ in db.execute(f'PRAGMA table_info("{self.name}")')]
            for name in set(schema.names) - set(known):
                db.execute(f'ALTER TABLE "{self.name}" ADD COLUMN "{name}"')

    def apply(self, key, receipt):
        self.must_be_declared(key)
        with self._open() as db:
            db.execute("BEGIN IMMEDIATE")  # nobody comes between the question and the commit
            already = self._last(db, key) >= key.epoch
            if not already and receipt.replace:
                db.execute(f'DELETE FROM "{self.name}"')
            for batch in () if already else self.spool.batches(receipt):
                columns, marks = _list(batch.schema.names), ", ".join("?" * batch.num_columns)
                rows = ([_plain(value) for value in row.values()] for row in batch.to_pylist())
                db.executemany(f'INSERT INTO "{self.name}" ({columns}) VALUES ({marks})', rows)
            if not already:
                done = key.transaction_id(self.name), key.epoch, version_of(key)
                db.execute("INSERT OR REPLACE INTO anabranch_epochs VALUES (?, ?, ?)", done)
            db.execute("COMMIT")
        crash.point("committed", self.name)  # tests kill the process here
        self.discard(file.path for file in receipt.files)
        return Applied(version_of(key), already)

    def latest(self, key):
        self.must_be_declared(key)
        with self._open() as db:
            return last if (last := self._last(db, key)) >= 0 else None

    def version(self):
        with self._open() as db:
            versions = db.execute("SELECT version FROM anabranch_epochs ORDER BY rowid DESC LIMIT 1")
            return next((version for (version,) in versions), "none")

    @contextmanager
    def _open(self):
        try:
            with closing(sqlite3.connect(self.spec.option("file"), timeout=30, isolation_level=None)) as db:
                yield db
        except sqlite3.Error as error:
            raise SinkError(
                "SQLITE_REFUSED", f"{self.name}: {error}", hint="look at the file", retryable=True
            ) from error

    def _last(self, db, key):
        query = "SELECT epoch FROM anabranch_epochs WHERE id = ?"
        return next((epoch for (epoch,) in db.execute(query, [key.transaction_id(self.name)])), -1)


def _list(names):
    return ", ".join(f'"{name}"' for name in names)


def _plain(value):
    return value if value is None or isinstance(value, int | float | str | bytes) else json.dumps(value, default=str)
