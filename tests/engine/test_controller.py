"""A project from a program: rows before anything is written, runs in front and in the background, and its tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from anabranch import Controller
from anabranch.connectors.memory import memory_table
from anabranch.errors import ProjectError, ProjectErrors

pytestmark = pytest.mark.spark
pytest_plugins = ["anabranch.testing"]

CODE = """
@dp.temporary_view
def orders_source():
    return spark.readStream.schema("id INT, kind STRING").json(LANDING).withColumn("file", F.col("_metadata.file_name"))

@dp.table(name="bronze.orders")
def bronze():
    return spark.readStream.table("orders_source")

dp.create_streaming_table("silver.orders", expect_all_or_drop={"has_id": "id IS NOT NULL"})
dp.create_auto_cdc_flow("silver.orders", "bronze.orders", ["id"], "kind")

dp.create_sink("looked_at", "memory")

@dp.append_flow(target="looked_at")
def looked_at_rows():
    return spark.readStream.table("bronze.orders").select("id")
"""


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if "pycache" not in str(path)}


def test_looking_running_stopping(made: Any) -> None:
    made.write(CODE)
    made.feed([{"id": 1, "kind": "a"}, {"id": 2, "kind": "b"}, {"id": 1, "kind": "c"}])
    project, before = Controller(made.root), files(made.root)
    seen = project.test_input("orders").to_pylist()
    assert sorted((row["id"], row["kind"], row["file"]) for row in seen) == [
        (1, "a", "0000.json"),
        (1, "c", "0000.json"),
        (2, "b", "0000.json"),
    ]
    assert sorted(row["id"] for row in project.test_output("orders", "silver").to_pylist()) == [1, 1, 2]
    assert project.test_output("orders", "bronze", rows=2).num_rows == 2
    assert files(made.root) == before, "looking wrote something"
    with pytest.raises(ProjectError) as unknown:
        project.test_output("order", "bronze")
    assert "bronze.orders" in (unknown.value.hint or "")

    summary = project.run()
    assert summary is not None
    assert summary.epochs == 1
    assert sorted(project.cut().arrow("silver.orders")["kind"].to_pylist()) == ["b", "c"]
    assert sorted(memory_table(project.project.storage, "looked_at")["id"].to_pylist()) == [1, 1, 2]
    [channel] = project.status()
    assert (channel["epoch"], channel["running"]) == (0, None)
    assert list(project.status_frame()["epoch"]) == [0]
    assert "<td>0</td>" in project.status()._repr_html_()
    assert "bronze.orders <- orders_source" in str(project.graph())
    assert project._repr_html_().startswith("<iframe srcdoc=")

    assert project.run(zones=["silver"], await_termination=False) is None
    try:
        assert project.is_running
        with pytest.raises(ProjectError) as twice:
            project.run(await_termination=False)
        assert twice.value.code == "RUNNING_ALREADY"
        made.feed([{"id": 3, "kind": "d"}])
        made.until(lambda: project.status()[0]["epoch"] == 1)
    finally:
        done = project.stop()
    assert done is not None
    assert done.epochs == 1
    assert not project.is_running
    with pytest.raises(ProjectError) as zone:
        project.run(zones=["sliver"])
    assert (zone.value.code, zone.value.hint) == ("ZONE_UNKNOWN", 'did you mean "silver"?')


def test_the_environment_is_that_of_everything(made: Any) -> None:
    """Also of what reads the project's files again: the sources, and where the rows went."""
    zones = {
        "values": {"landing": "landing", "lake": "lake"},
        "environments": {"other": {"values": {"landing": "elsewhere", "lake": "lake-other"}}},
        "storage": "${lake}",
        "sources": {"files": {"format": "json", "path": "${landing}"}},
        "zones": {"bronze": {"mode": "append"}},
        "entities": {"order": {"source": "files", "schema": "id INT"}},
    }
    made.write("", **zones)
    made.feed([{"id": 1}])
    (made.root / "elsewhere").mkdir()
    (made.root / "elsewhere" / "a.json").write_text('{"id": 2}')
    other = Controller(made.root, env="other")
    assert [row["id"] for row in other.test_output("order", "bronze").to_pylist()] == [2]
    other.run()
    assert other.cut().arrow("bronze.order")["id"].to_pylist() == [2]
    assert not (made.root / "lake").exists()
    other.run(await_termination=False)
    (made.root / "elsewhere" / ".b").write_text('{"id": 3}')
    (made.root / "elsewhere" / ".b").rename(made.root / "elsewhere" / "b.json")  # whole, or not there
    made.until(lambda: other.status()[0]["epoch"] == 1)
    other.stop()
    assert sorted(other.cut().arrow("bronze.order")["id"].to_pylist()) == [2, 3]


def test_a_background_run_that_cannot_begin(made: Any) -> None:
    made.write("def broken(:\n")
    with pytest.raises(ProjectErrors):
        Controller(made.root).run(await_termination=False)


def test_fixtures_for_users(anabranch_project: Any, tmp_path: Path) -> None:
    """A project is fed, killed in the middle of an epoch, and comes back whole."""
    source = tmp_path / "source" / "shop"
    (source / "transformations").mkdir(parents=True)
    (source / "lake").mkdir()
    (source / "anabranch.yml").write_text(json.dumps({"name": "shop", "trigger": "0 seconds"}))
    (source / "transformations" / "shop.py").write_text(
        "from pathlib import Path\n"
        "from anabranch import pipelines as dp\n"
        "@dp.table\n"
        "def orders():\n"
        "    return spark.readStream.schema('id INT').json(str(Path(__file__).parent.parent / 'landing'))\n"
    )
    project = anabranch_project(source)
    project.feed("landing", [{"id": 1}, {"id": 2}])
    project.run(crash="decided")
    told = project.run()
    assert [event["epoch"] for event in told if event["event"] == "epoch_recovered"] == [0]
    assert sorted(row["id"] for row in project.rows("orders")) == [1, 2]
    assert list((source / "lake").iterdir()) == []
