"""Steps that fail without killing the process: no space, I/O errors, commits refused, answers lost.

The epoch is given up or kept, whole, and the next start goes on from there.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from crash_children import Ended
from crash_harness import Lake
from crash_model import TABLES, compare

from anabranch.core.crash import POINTS
from anabranch.errors import StateError

pytestmark = [pytest.mark.crash, pytest.mark.timeout(900)]

BEFORE = {"recovering": "decided", "discarding": "staged"}


@pytest.mark.parametrize("action", ["enospc", "eio"])
def test_every_step_fails_once(action: str, lake: Lake) -> None:
    lake.land()
    lake.finish()
    for point in POINTS:
        lake.land(2)
        if point in BEFORE:
            lake.die(BEFORE[point])
        before = lake.eye.seen
        ended = lake.run(crash=f"{point}:{action}")
        ended.refused("DISK_FAILED")
        # Only a failure after publishing leaves a new cut behind.
        assert lake.eye.seen == before + (point == "published"), point
        lake.finish()


def test_a_step_that_fails_for_a_passing_reason_is_tried_again(new_lake: Callable[..., Lake]) -> None:
    soon = "  spark.sql.pipelines.execution.watchdog.minRetryTime: 0.01\n"
    lake = new_lake(configuration=soon)
    lake.land(2)
    for point in ("read", "staged", "decided", "applying(errors)", "committed(errors)", "published"):
        lake.land()
        ended = lake.run(crash=f"{point}:eio")
        assert ended.code == 0, ended
        [retried] = ended.events("channel_retried")
        assert (retried["code"], retried["attempt"]) == ("DISK_FAILED", 1)
        assert lake.eye.seen == len(lake.model.files()) - 1
    # as long as the reason stays, so does the failure
    lake.land()
    ended = lake.run(crash="read:eio,read:eio@1,read():eio")
    ended.refused("DISK_FAILED")
    assert [e["attempt"] for e in ended.events("channel_retried")] == [1, 2]
    lake.finish()


@pytest.mark.parametrize("table", TABLES)
def test_an_answer_that_was_lost_is_looked_up(table: str, lake: Lake) -> None:
    """The commit is done, its answer never comes: the epoch is found in the table and not sent again."""
    lake.land(2)
    ended = lake.run(crash=f"committed({table}):raise")
    assert ended.code == 1, ended
    assert lake.eye.seen == -1
    assert not compare(lake.rows(table), lake.model.expected(table, 1)).wrong
    lake.finish()
    assert lake.epochs()[0].applied[table].already
    assert [other for other in TABLES if lake.epochs()[0].applied[other].already] == [table]


@pytest.mark.parametrize("table", TABLES)
def test_one_output_fails_and_the_others_wait_for_it(table: str, lake: Lake) -> None:
    lake.land(2)
    assert lake.run(crash=f"applying({table}):raise").code == 1
    assert lake.eye.seen == -1
    assert not lake.rows(table)
    for other in TABLES:
        assert lake.rows(other) in (Counter(), lake.model.expected(other, 1)), "taken whole, or not yet"
    ended = lake.finish()
    [recovered] = ended.events("epoch_recovered")
    assert recovered["epoch"] == 0
    assert table in recovered["sinks"]


def test_a_commit_that_cannot_be_written(lake: Lake) -> None:
    """Something sits where the table's next commit would go."""
    lake.land()
    lake.finish()
    lake.land()
    obstacle = lake.table("errors") / "_delta_log" / f"{2:020}.json"
    obstacle.mkdir()
    (obstacle / "in the way").touch()
    ended = lake.run()
    ended.refused("COMMIT_REFUSED")
    assert lake.eye.seen == 0
    (obstacle / "in the way").unlink()
    obstacle.rmdir()
    assert lake.finish().events("epoch_recovered")


def test_a_table_that_asks_for_a_newer_writer(lake: Lake) -> None:
    """Somebody upgraded one table beyond what this version writes: the epoch waits, decided, until that is undone."""
    lake.land()
    lake.finish()
    lake.land()
    child = lake.start(crash="decided:stop")
    child.until_stopped()
    upgrade = lake.table("slow") / "_delta_log" / f"{2:020}.json"
    upgrade.write_text(json.dumps({"protocol": {"minReaderVersion": 1, "minWriterVersion": 99}}) + "\n")
    child.signal(signal.SIGCONT)
    child.wait().refused("COMMIT_REFUSED")
    assert lake.eye.look() == 0
    upgrade.unlink()
    assert lake.finish().events("epoch_recovered")


@pytest.mark.parametrize("file_bytes", [300, 900, 2_000, 40_000, 90_000])
def test_no_file_may_grow_beyond(file_bytes: int, lake: Lake) -> None:
    """A quota that really is one: the kernel refuses to make any file larger than this."""
    lake.land(3)
    lake.finish()
    lake.land(3, events=400)
    ended = lake.run(file_bytes=file_bytes)
    assert ended.code == 1, ended
    assert ended.error["hint"], ended
    lake.finish()


#: Bytes that are left on the disk, from none to enough.
FREE = range(0, 400_000, 28_672)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", folder], capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def test_the_disk_is_full(small_disk: Path) -> None:
    """Space runs out at one write after another, a little later each time, until there is enough."""
    lake = Lake(small_disk / "project")
    try:
        lake.land()
        lake.finish()
        failed = 0
        ballast = small_disk / "ballast"
        for free in FREE:
            lake.land(2, events=40)
            ended = _run_with_free(lake, ballast, free)
            assert ended.code in (0, 1), ended
            failed += ended.code
            lake.finish()
        assert failed >= 3
        assert failed < len(FREE), "it never had enough space"
    finally:
        lake.end()


def _run_with_free(lake: Lake, ballast: Path, free: int) -> Ended:
    out = lake._out()
    out.unlink()
    out.symlink_to(lake.folder.parents[1] / out.name)  # what the child says must not be what fills the disk
    room = os.statvfs(lake.folder)
    ballast.write_bytes(b"\0" * max(0, room.f_bavail * room.f_bsize - free))
    ended = lake.start().wait()
    with contextlib.suppress(StateError):  # SQLite may need space for reading, too
        lake.eye.look()
    ballast.unlink()
    lake.eye.look()
    return ended
