"""The page of a dataset: who answers for it, and where its columns come from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ui_served import Reader, client

from anabranch.core.column_lineage import ColumnOrigins, DatasetColumns, How, Influence, RowOrigins
from anabranch.core.events_data import LineageChanged
from anabranch.store.history_writer import HistoryWriter

FILE = """
from anabranch import pipelines as dp

@dp.table(table_properties={"anabranch.owner": "<b>orders</b> team"})
def orders():
    return spark.readStream.table("lake.raw.orders")
"""


def test_owner_and_columns(tmp_path: Path) -> None:
    (tmp_path / "anabranch.yml").write_text("name: shop\n")
    (tmp_path / "pipeline.py").write_text(FILE)
    found = DatasetColumns(
        "orders",
        {
            "id": ColumnOrigins(frozenset({Influence("raw", "<i>key</i>", How.IDENTITY)})),
            "price": ColumnOrigins(unknown=frozenset({"calls a script"})),
        },
        RowOrigins(frozenset({Influence("raw", "status", How.FILTER)})),
    )
    with client(tmp_path) as page:
        before = page.get("/datasets/orders").text
        writer = HistoryWriter(tmp_path / "lake/_anabranch/history.db", "shop", keep_seconds=60, tell=pytest.fail)
        writer.put(LineageChanged("orders", "orders", 3, ("id",), json.dumps(found.as_record()), True))
        writer.close("done")
        text = page.get("/datasets/orders").text
    assert "Where its columns come from" not in before
    assert Reader(text).faults == []
    assert "&lt;b&gt;orders&lt;/b&gt; team" in text
    assert "raw.&lt;i&gt;key&lt;/i&gt;" in text
    assert "unknown: calls a script" in text
    assert "Version 1, since epoch 3. Which rows there are depends on raw.status (filter)." in text
