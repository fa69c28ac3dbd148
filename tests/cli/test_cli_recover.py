"""`anabranch recover` and sinks that need their declaration: finished without a run, and without Spark."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from anabranch.cli.main import main
from anabranch.connectors.parquet_files import StagedWriter
from anabranch.core.epoch import EpochKey
from anabranch.engine.commit import decide
from anabranch.engine.lease import lease
from anabranch.engine.opened import open_project
from anabranch.engine.upkeep import declared_outputs
from anabranch.load.project import read_project
from anabranch.store.ledger import OutputRecord

sys.path.insert(0, str(Path(__file__).parents[1] / "servers"))
from webhook_receiver import Receiver

CODE = """
from anabranch import pipelines as dp
from anabranch import secret

OPTIONS = {"url": "${env:SHOP_HOOK}", "headers.X-Token": secret("env:SHOP_TOKEN"), "on_failure": "block", "tries": "1"}
dp.create_sink("alerts", "webhook", OPTIONS)

@dp.append_flow(target="alerts")
def all_alerts():
    return spark.readStream.table("orders")

@dp.foreach_batch_sink
def function(df, batch_id):
    raise AssertionError("only a run calls functions")
"""
SCHEMA = pa.schema([("id", pa.int64())])


def decided(root: Path) -> None:
    """An epoch whose rows no sink has taken, as a crash leaves it."""
    outputs = [OutputRecord("alerts", "webhook", "webhook://alerts")]
    with open_project(read_project(root), create=True) as opened:
        record = opened.ledger.ensure_channel(opened.pipeline.pipeline_id, "orders", outputs)
        sinks = opened.sinks(record.outputs, declared_outputs(opened))
        sinks["alerts"].prepare(SCHEMA)
        with lease(opened, "orders") as (held, _):
            key = EpochKey(opened.pipeline.pipeline_id, "orders", record.generation, 0)
            writer = StagedWriter(sinks["alerts"].staging(key, held.token), "t")
            writer.write(pa.record_batch([pa.array([1, 2])], schema=SCHEMA))
            decide(opened.ledger, held, key, [sinks["alerts"].receipt(key, writer.close())], offsets="0", times={})


def recover(root: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    capsys.readouterr()
    return main(["recover", "--project", str(root)]), "".join(capsys.readouterr())


def test_it_is_finished_from_the_declaration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "anabranch.yml").write_text(json.dumps({"name": "shop"}))
    file = tmp_path / "transformations" / "pipeline.py"
    file.parent.mkdir()
    file.write_text(CODE)
    with Receiver() as receiver:
        monkeypatch.setenv("SHOP_HOOK", receiver.url)
        monkeypatch.setenv("SHOP_TOKEN", "token-4711")
        decided(tmp_path)
        file.write_text("this is no Python")
        code, said = recover(tmp_path, capsys)
        assert code == 1
        assert "DECLARATION_NEEDED" in said
        file.write_text("")
        assert "DECLARATION_NEEDED" in recover(tmp_path, capsys)[1]
        file.write_text(CODE)
        receiver.always = 500
        code, said = recover(tmp_path, capsys)
        assert code == 1
        assert "WEBHOOK_FAILED" in said
        receiver.always = 200
        code, said = recover(tmp_path, capsys)
        assert code == 0
        assert "recovered  finished in alerts" in said
        assert receiver.ids == [1, 2]
        assert receiver.requests[-1][1]["X-Token"] == "token-4711"
        assert len(receiver.keys) == 1
        assert "pyspark" not in said
