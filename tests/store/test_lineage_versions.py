"""Versions of column lineage in the history."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

from anabranch.core.column_lineage import ColumnOrigins, DatasetColumns, How, Influence
from anabranch.core.events_data import LineageChanged
from anabranch.store.history import History
from anabranch.store.history_file import connect_to_write
from anabranch.store.history_writer import HistoryWriter
from anabranch.store.lineage_versions import column_lineage_of, lineage_versions, newest_lineage


def lineage(*columns: str) -> DatasetColumns:
    return DatasetColumns(
        "orders", {c: ColumnOrigins(frozenset({Influence("files", c, How.IDENTITY)})) for c in columns}, owner="shop"
    )


def put(path: Path, *found: DatasetColumns, epoch: int = 0, first: bool = True) -> str:
    writer = HistoryWriter(path, "shop", keep_seconds=60, tell=lambda why: (_ for _ in ()).throw(AssertionError(why)))
    for one in found:
        writer.put(LineageChanged("c", one.dataset, epoch, tuple(one.columns), json.dumps(one.as_record()), first))
    writer.close("done")
    return writer.run


def test_a_new_version_for_what_is_new_and_none_for_what_is_the_same(tmp_path: Path) -> None:
    path, history = tmp_path / "history.db", History(tmp_path / "history.db")
    assert column_lineage_of(history, "orders") is None
    first = put(path, lineage("id"))
    put(path, lineage("id"), epoch=3)  # as two runs at once would, that both looked before either wrote
    last = put(path, lineage("id", "total"), epoch=5, first=False)
    found = lineage_versions(history, "orders")
    assert [(v.version, v.run, v.epoch, list(v.lineage.columns)) for v in found] == [
        (1, first, 0, ["id"]),
        (2, last, 5, ["id", "total"]),
    ]
    assert column_lineage_of(history, "orders") == found[1] == newest_lineage(history)["orders"]
    assert column_lineage_of(history, "orders", 1) == found[0]
    assert column_lineage_of(history, "orders", 3) is None
    assert found[1].lineage.owner == "shop"


def test_what_is_found_the_first_time_is_no_news(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    put(path, lineage("id"))
    put(path, lineage("id", "total"), first=False)
    events = History(path).events()
    assert [e.message for e in events] == ["orders  column lineage changed: id, total, from epoch 0 on"]
    assert "document" not in events[0].details


def test_a_history_of_before_has_no_versions_and_gets_the_table(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    connect_to_write(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE column_lineage")
        connection.execute("PRAGMA user_version = 1")
    assert newest_lineage(History(path)) == {}
    put(path, lineage("id"))
    assert column_lineage_of(History(path), "orders") is not None
