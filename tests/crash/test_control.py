"""The control: the same input, harness and model against plain foreachBatch, where they must find what is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from crash_children import Child
from crash_harness import Eye, Lake, Torn
from crash_model import TABLES, Rows, compare, rows_of

pytestmark = [pytest.mark.crash, pytest.mark.spark]


class PlainEye(Eye):
    """A reader of the newest version of each table: there is no cut."""

    def read(self) -> tuple[int, Mapping[str, Rows]]:
        tables = {table: self.lake.rows(table) for table in TABLES}
        files = {int(name.partition("-")[0]) for name in tables["everything"]}
        return max(files, default=-1), tables


def test_foreach_batch_repeats_rows_and_lets_readers_see_half_an_epoch(lake: Lake) -> None:
    lake.land(4)
    assert _start(lake, kill="1:everything").wait().killed
    with pytest.raises(Torn, match="epoch 1, errors"):
        PlainEye(lake).look()

    child, torn = _start(lake), 0
    while not child.ended(within=0.1):  # what readers see while it goes on
        try:
            PlainEye(lake).look()
        except Torn:
            torn += 1
    assert child.wait().code == 0, child.wait()
    assert torn > 0

    found = {table: compare(lake.rows(table), lake.model.expected(table)) for table in TABLES}
    assert found["everything"].twice == rows_of(lake.model.files()[1])["everything"], "the batch was written again"
    assert not found["everything"].lost
    assert not found["errors"].wrong
    assert not found["slow"].wrong
    with pytest.raises(AssertionError):
        lake.check_finished()


def _start(lake: Lake, kill: str = "") -> Child:
    program = Path(__file__).with_name("plain.py")
    return lake.start_program([str(program), str(lake.folder)], {"KILL": kill})
