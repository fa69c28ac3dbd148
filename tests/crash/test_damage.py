"""Files that were damaged, lost, or put back from an older time: told and refused, or made good from the source.

Whatever is refused leaves everything as it is, and names a way out.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from crash_harness import Lake
from crash_model import TABLES

pytestmark = [pytest.mark.crash, pytest.mark.timeout(900)]


def _torn(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def _flipped(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0x10
    file.write_bytes(content)


DAMAGES: dict[str, Callable[[Path], None]] = {
    "torn": _torn,
    "emptied": lambda file: file.write_bytes(b""),
    "flipped": _flipped,
    "gone": lambda file: file.unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_staged_file_is(damage: str, lake: Lake) -> None:
    """Decided, but not taken yet: it is staged again from the same offsets, and what was damaged never applied."""
    lake.land()
    for table in TABLES:
        lake.land(2)
        lake.die("decided")
        staged = sorted(path for path in lake.leftovers() if path.startswith(table))
        DAMAGES[damage](lake.storage / "tables" / staged[0])
        ended = lake.run()
        assert ended.code == 0, ended
        [restaged] = ended.events("epoch_restaged")
        assert restaged["sinks"] == [table]
        assert staged[0].partition("/")[2] in restaged["reason"]
        lake.finish()  # and what was damaged is gone


def test_every_staged_file_is_damaged_and_staging_them_again_is_killed(lake: Lake) -> None:
    lake.land(2)
    lake.die("decided")
    for path in lake.leftovers():
        _torn(lake.storage / "tables" / path)
    for point in ("recovered", "staging", "deciding", "applying", "publishing"):
        lake.die(point)
    lake.finish()


def test_a_staged_file_is_damaged_after_some_outputs_took_the_epoch(lake: Lake) -> None:
    """Only what is still to be taken is staged again."""
    lake.land()
    lake.die("applied(errors),applying(slow):hang,applying(everything):hang")
    for path in lake.leftovers():
        _flipped(lake.storage / "tables" / path)
    [restaged] = lake.run().events("epoch_restaged")
    assert restaged["sinks"] == ["everything", "slow"]
    lake.finish()


# The ledger


def _refused(lake: Lake, code: str, verb: tuple[str, ...] = ()) -> None:
    """The start is refused, and twice in a row it changes nothing."""
    before = lake.snapshot()
    for _ in range(2):
        lake.start(*verb).wait().refused(code)
        after = lake.snapshot()
        changed = {path for path in before | after if before.get(path) != after.get(path) and "ledger.db" not in path}
        assert not changed


def _crashed_with_an_open_epoch(lake: Lake) -> None:
    lake.land()
    lake.finish()
    lake.land()
    lake.die("decided")


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE anabranch_sinks SET receipt = replace(receipt, '\"rows\":', '\"rowz\":') WHERE sink = 'slow'",
        "UPDATE anabranch_sinks SET receipt = replace(receipt, 'ab-', 'ac-') WHERE sink = 'errors'",
        "UPDATE anabranch_epochs SET offsets = replace(offsets, '2', '3')",
        "UPDATE anabranch_sinks SET version = '7' WHERE sink = 'slow'",
        "DELETE FROM anabranch_sinks WHERE sink = 'slow'",
    ],
    ids=["a receipt's count", "a receipt's path", "the offsets", "a version", "a receipt is gone"],
)
def test_a_record_was_altered(change: str, lake: Lake) -> None:
    _crashed_with_an_open_epoch(lake)
    kept = lake.copy(lake.ledger_file.parent, "kept")
    with sqlite3.connect(lake.ledger_file) as ledger:
        ledger.execute(change)
    ledger.close()
    _refused(lake, "LEDGER_DAMAGED")
    _put_back(lake, kept)
    lake.finish()


def test_a_byte_of_the_ledger_was_flipped(lake: Lake) -> None:
    """Wherever it is: refused, or without meaning."""
    lake.land()
    lake.finish()
    whole = lake.ledger_file.read_bytes()
    refused = 0
    in_receipts = [match.start() for match in re.finditer(rb"blake2b", whole)]
    for place in [*in_receipts, *range(60, len(whole), len(whole) // 6)]:
        damaged = bytearray(whole)
        damaged[place] ^= 0x20
        lake.ledger_file.write_bytes(damaged)
        before = lake.snapshot()
        ended = lake.start().wait()
        if ended.code:
            ended.refused("LEDGER_DAMAGED")
            refused += 1
            lake.ledger_file.write_bytes(whole)
        after = lake.snapshot()
        assert {p for p in before | after if before.get(p) != after.get(p) and "ledger.db" not in p} == set(), place
        lake.finish()
        lake.ledger_file.write_bytes(whole)
    assert refused >= 3


@pytest.mark.parametrize("damage", ["torn", "emptied"])
def test_the_ledger_is(damage: str, lake: Lake) -> None:
    lake.land(3)
    lake.finish()
    whole = lake.ledger_file.read_bytes()
    DAMAGES[damage](lake.ledger_file)
    _refused(lake, "LEDGER_DAMAGED")
    lake.ledger_file.write_bytes(whole)
    lake.land()
    lake.finish()


def test_the_ledger_is_missing(lake: Lake) -> None:
    lake.land(2)
    lake.finish()
    aside = lake.ledger_file.rename(lake.folder / "ledger.db")
    lake.land()
    _refused(lake, "LEDGER_MISSING")
    assert not lake.ledger_file.exists(), "a new ledger beside old tables would read everything again"
    aside.rename(lake.ledger_file)
    lake.finish()


def test_everything_but_the_tables_is_missing(lake: Lake) -> None:
    """A start that took this for a new project would append every row a second time."""
    lake.land(2)
    lake.finish()
    own = lake.storage / "_anabranch"
    aside = own.rename(lake.folder / "kept")
    _refused(lake, "STORAGE_UNKNOWN")
    shutil.rmtree(own, ignore_errors=True)
    aside.rename(own)
    lake.land()
    lake.finish()


def test_an_older_ledger_was_put_back(lake: Lake) -> None:
    lake.land(2)
    lake.finish()
    older = lake.copy(lake.ledger_file, "older.db")
    lake.land(2)
    lake.finish()
    newest = lake.copy(lake.ledger_file, "newest.db")
    shutil.copy2(older, lake.ledger_file)
    _refused(lake, "LEDGER_OLDER")
    shutil.copy2(newest, lake.ledger_file)
    lake.land()
    lake.finish()


def test_an_older_ledger_and_the_checkpoint_of_that_time_were_put_back(lake: Lake) -> None:
    """The two fit each other; only the tables know better."""
    lake.land(2)
    lake.finish()
    older = lake.copy(lake.storage / "_anabranch", "older")
    lake.land(2)
    lake.finish()
    newest = lake.copy(lake.storage / "_anabranch", "newest")
    _put_back(lake, older)
    _refused(lake, "LEDGER_OLDER")
    _put_back(lake, newest)
    lake.land()
    lake.finish()


def test_a_ledger_from_the_middle_of_an_epoch_was_put_back(lake: Lake) -> None:
    """It thinks an epoch is open which was finished long ago, and others came after it."""
    _crashed_with_an_open_epoch(lake)
    older = lake.copy(lake.storage / "_anabranch", "older")
    lake.land(2)
    lake.finish()
    newest = lake.copy(lake.storage / "_anabranch", "newest")
    rows = {table: lake.rows(table) for table in TABLES}
    _put_back(lake, older, only="ledger.db*")
    lake.start().wait().refused("LEDGER_OLDER")
    _put_back(lake, older)
    lake.start().wait().refused("LEDGER_OLDER")
    assert rows == {table: lake.rows(table) for table in TABLES}
    _put_back(lake, newest)
    lake.finish()


def test_the_ledger_of_another_project(new_lake: Callable[..., Lake]) -> None:
    lake, other = new_lake(), new_lake()
    for each in (lake, other):
        each.land(2)
        each.finish()
    own = lake.copy(lake.ledger_file, "own.db")
    shutil.copy2(other.ledger_file, lake.ledger_file)
    _refused(lake, "LEDGER_COPIED")
    shutil.copy2(own, lake.ledger_file)
    spec = lake.folder / "anabranch.yml"
    text = spec.read_text()
    spec.write_text(f"{text}ledger: {other.ledger_file}\n")
    _refused(lake, "LEDGER_FOREIGN")
    spec.write_text(text)
    for each in (lake, other):
        each.land()
        each.finish()


def test_a_copy_of_the_whole_project(lake: Lake) -> None:
    """Two projects that both think they own the epochs; the copy is recognised, the original goes on."""
    lake.land(2)
    lake.finish()
    copy = lake.folder.with_name("copy")
    shutil.copytree(lake.folder, copy)
    original, lake.folder = lake.folder, copy
    _refused(lake, "LEDGER_COPIED")
    lake.folder = original
    lake.land()
    lake.finish()


# The checkpoint


def test_the_newest_commit_of_the_checkpoint_is_gone(lake: Lake) -> None:
    """Spark hands in a batch again that was published: it is recognised and skipped."""
    lake.land(3)
    lake.finish()
    for _ in range(2):
        max((lake.checkpoint / "commits").iterdir(), key=lambda path: int(path.name)).unlink()
        lake.land()
        lake.finish()


@pytest.mark.parametrize(
    ("logs", "code"),
    [(("offsets",), "CHECKPOINT_OLDER"), (("offsets", "commits"), "CHECKPOINT_OLDER")],
    ids=["offsets", "offsets and commit"],
)
def test_the_newest_is_gone_from_the_checkpoint(logs: tuple[str, ...], code: str, lake: Lake) -> None:
    lake.land(3)
    lake.finish()
    kept = lake.copy(lake.storage / "_anabranch", "kept")
    for log in logs:
        (lake.checkpoint / log / "2").unlink()
    lake.land()
    _refused(lake, code)
    _put_back(lake, kept)
    lake.finish()


@pytest.mark.parametrize("how", ["the folder", "its offsets"])
def test_the_checkpoint_is_missing(how: str, lake: Lake) -> None:
    lake.land(2)
    lake.finish()
    aside = lake.copy(lake.checkpoint, "aside")
    shutil.rmtree(lake.checkpoint if how == "the folder" else lake.checkpoint / "offsets")
    _refused(lake, "CHECKPOINT_MISSING")
    shutil.rmtree(lake.checkpoint, ignore_errors=True)
    aside.rename(lake.checkpoint)
    lake.land()
    lake.finish()


def test_an_older_checkpoint_was_put_back(lake: Lake) -> None:
    lake.land(2)
    lake.finish()
    older = lake.copy(lake.checkpoint, "older")
    lake.land(2)
    lake.finish()
    newest = lake.copy(lake.checkpoint, "newest")
    shutil.rmtree(lake.checkpoint)
    shutil.copytree(older, lake.checkpoint)
    _refused(lake, "CHECKPOINT_OLDER")
    shutil.rmtree(lake.checkpoint)
    shutil.copytree(newest, lake.checkpoint)
    lake.land()
    lake.finish()


def test_the_checkpoint_names_other_offsets(lake: Lake) -> None:
    lake.land(2)
    lake.finish()
    offsets = lake.checkpoint / "offsets" / "1"
    text = offsets.read_text()
    offsets.write_text(text.replace("2", "1"))
    _refused(lake, "CHECKPOINT_DIVERGED")
    offsets.write_text(text)
    lake.land()
    lake.finish()


def test_the_checkpoint_of_another_project(new_lake: Callable[..., Lake]) -> None:
    lake, other = new_lake(), new_lake()
    for each in (lake, other):
        each.land(2)
        each.finish()
    aside = lake.checkpoint.rename(lake.folder / "aside")
    shutil.copytree(other.checkpoint, lake.checkpoint)
    _refused(lake, "CHECKPOINT_FOREIGN")
    shutil.rmtree(lake.checkpoint)
    aside.rename(lake.checkpoint)
    lake.land()
    lake.finish()


@pytest.mark.parametrize("table", TABLES)
def test_a_table_is_gone(table: str, lake: Lake) -> None:
    lake.land(2)
    lake.finish()
    aside = lake.table(table).rename(lake.folder / "aside")
    lake.land()
    _refused(lake, "TABLE_GONE")
    assert not lake.table(table).exists()
    aside.rename(lake.table(table))
    lake.finish()


def _put_back(lake: Lake, kept: Path, only: str = "*") -> None:
    own = lake.storage / "_anabranch"
    for path in own.glob(only):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in kept.glob(only):
        shutil.copytree(path, own / path.name) if path.is_dir() else shutil.copy2(path, own / path.name)
