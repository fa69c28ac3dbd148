"""The parts of the files source that need no Spark: places of dead letters, names, cleaning up."""

from __future__ import annotations

import fnmatch
import json
import os
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.core.epoch import EpochKey
from anabranch.core.events import Event
from anabranch.core.events_data import FilesKept
from anabranch.engine import archive
from anabranch.engine.archive import Cleaned, Cleaner, archived, move_aside
from anabranch.engine.checkpoint import Checkpoint
from anabranch.engine.source_files import UNFINISHED
from anabranch.engine.source_files_errors import check_files
from anabranch.engine.source_files_letters import Letters
from anabranch.engine.source_files_log import read_in, read_until
from anabranch.engine.source_files_names import not_ending
from anabranch.errors import DataError, StateError

HOW = {
    "format": "json",
    "schema": {"type": "struct", "fields": [{"name": "id", "type": "integer"}]},
    "meta": None,
    "envelope": None,
    "whole": False,
    "header": False,
    "sep": ",",
    "quote": '"',
    "null": "",
    "encoding": "utf-8",
    "lineSep": None,
}


def letter(file: Path, record: str, start: int, length: int) -> str:
    told = {"record": record, "element": None, "file": f"file://{file}", "start": start, "length": length}
    return json.dumps({"id": None, "_dead_letter": {**told, "how": json.dumps(HOW)}}, separators=(",", ":"))


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.sampled_from(["bad", "worse", "\u00fc", "1", "", "bad "]), min_size=1, max_size=12),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.booleans(),
    st.integers(1, 20),
    st.booleans(),
)
def test_every_line_is_found_in_its_split(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], end: str, final: bool, size: int, backwards: bool
) -> None:
    """The splits of a file, as Hadoop shares out its lines: each begins after the first byte of a split."""
    content = end.join(lines).encode() + (end.encode() if final else b"")
    file = tmp_path_factory.mktemp("f") / "x.json"
    file.write_bytes(content)
    offset, places = 0, list[tuple[int, int, str]]()
    for number, line in enumerate(lines, 1):
        if line:
            places.append((number, offset, line))
        offset += len(line.encode()) + len(end)
    found = []
    for start in range(0, len(content) or 1, size):
        own = [p for p in places if (p[1] > start or start == 0) and p[1] <= start + size]
        letters = Letters()
        for place in reversed(own) if backwards else own:
            payload = pa.array([letter(file, place[2], start, size)])
            told = json.loads(letters.explained(payload)[0].as_py())
            found.append((told["line"], told["offset"], told["record"]))
    assert sorted(found) == sorted(places)


def test_rows_that_are_no_dead_letters_stay_as_they_are() -> None:
    rows = pa.array(['{"_dead_letter":null,"id":1}', '{"s":"\\"_dead_letter\\":{"}', None])
    assert Letters().explained(rows).to_pylist() == rows.to_pylist()


def test_a_file_that_is_gone_leaves_the_record(tmp_path: Path) -> None:
    told = json.loads(Letters().explained(pa.array([letter(tmp_path / "x", '{"id":"a"}', 0, 9)]))[0].as_py())
    assert told["line"] is None
    assert (told["record"], told["reason"]) == ('{"id":"a"}', "column id: 'a' is not an int")


@given(st.text("abtmpr.cdownload_x", min_size=1, max_size=14), st.sampled_from(["", *UNFINISHED]))
def test_the_glob_takes_every_name_but_unfinished_ones(start: str, ending: str) -> None:
    name = start + ending
    patterns = not_ending(UNFINISHED)[1:-1].split(",")
    assert any(fnmatch.fnmatchcase(name, one) for one in patterns) == (not name.endswith(UNFINISHED))


class Folder:
    """A folder that a source reads, with the log of Spark's file source."""

    def __init__(self, root: Path, places: int = 1, clean: str = "archive") -> None:
        self.root, self.source, self.archive = root, root / "in", root / "old"
        self.source.mkdir()
        self.checkpoint = Checkpoint(root / "checkpoint")
        options = {"path": str(self.source), "anabranch.clean": clean}
        if clean == "archive":
            options["anabranch.archive"] = str(self.archive)
        self.events: list[Event] = []
        self.cleaner = Cleaner("c", self.checkpoint, [Cleaned.of(options)] * places, self.events.append)
        self.options = options

    def file(self, name: str, content: str = "x") -> Path:
        path = self.source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        return path

    def read(self, epoch: int, *files: Path, place: int = 0, compact: bool = False) -> None:
        """An epoch whose number is that of the batch in the log of one place."""
        self.log(epoch, *files, place=place, compact=compact)
        before = (self.checkpoint.offsets(epoch) or self.checkpoint.offsets(epoch - 1) or "").splitlines()
        numbers = [-1 if line == "-" else json.loads(line)["logOffset"] for line in before]
        numbers += [-1] * (place + 1 - len(numbers))
        numbers[place] = epoch
        self.offsets(epoch, *numbers)

    def log(self, batch: int, *files: Path, place: int = 0, compact: bool = False) -> None:
        """A batch in the log of a source."""
        log = self.checkpoint.folder / "sources" / str(place) / f"{batch}{'.compact' if compact else ''}"
        log.parent.mkdir(parents=True, exist_ok=True)
        lines = [self._entry(file, batch) for file in files]
        log.write_text("\n".join(["v1", *lines]))

    def offsets(self, epoch: int, *batches: int) -> None:
        """Where each source stands after an epoch, by the batches of its log."""
        path = self.checkpoint.folder / "offsets" / str(epoch)
        path.parent.mkdir(exist_ok=True)
        lines = ["-" if batch < 0 else json.dumps({"logOffset": batch}) for batch in batches]
        path.write_text("\n".join(["v1", "{}", *lines]))

    def _entry(self, file: Path, epoch: int) -> str:
        told: dict[str, Any] = {"path": file.as_uri(), "timestamp": file.stat().st_mtime_ns // 1_000_000}
        return json.dumps({**told, "batchId": epoch})

    @property
    def left(self) -> set[str]:
        return {str(p.relative_to(self.source)) for p in self.source.rglob("*") if p.is_file()}

    @property
    def old(self) -> dict[str, str]:
        return {str(p.relative_to(self.archive)): p.read_text() for p in self.archive.rglob("*") if p.is_file()}


def test_files_of_published_epochs_are_moved_and_no_others(tmp_path: Path) -> None:
    made = Folder(tmp_path)
    one, two, three = made.file("a b.json"), made.file("deep/\u00fc%.json"), made.file("c.json")
    made.read(0, one)
    made.read(1, two)
    made.read(2, three)
    made.cleaner.after(0)
    assert made.left == {"deep/\u00fc%.json", "c.json"}
    made.cleaner.catch_up(1)  # killed before epoch 1 was cleaned up
    made.cleaner.catch_up(1)
    assert made.left == {"c.json"}
    assert set(made.old) == {"a b.json", "deep/\u00fc%.json"}
    assert archived(str(two), made.options) == str(made.archive / "deep/\u00fc%.json")
    assert archived(str(three), made.options) == str(three)
    assert made.events == []


def test_a_log_that_was_put_together(tmp_path: Path) -> None:
    made = Folder(tmp_path, clean="delete")
    files = [made.file(f"{n}.json") for n in range(3)]
    made.read(0, files[0])
    made.read(1, files[0], files[1], compact=True)
    made.read(2, files[2])
    made.cleaner.catch_up(1)
    assert made.left == {"2.json"}
    made.cleaner.after(2)
    assert made.left == set()


def test_where_state_is_kept_files_stay_until_spark_will_not_read_them_again(tmp_path: Path) -> None:
    """Killed before it has noted that it is done with an epoch, Spark computes it once more, and its state."""
    made = Folder(tmp_path)
    cleaner = replace(made.cleaner, keeps_state=True)
    for epoch in range(3):
        made.read(epoch, made.file(f"{epoch}.json"))
    cleaner.after(0)
    cleaner.end()
    cleaner.catch_up(0)
    assert made.left == {"0.json", "1.json", "2.json"}
    noted = made.checkpoint.folder / "commits"
    noted.mkdir()
    (noted / "0").touch()
    cleaner.after(1)
    assert made.left == {"1.json", "2.json"}
    (noted / "1").touch()
    cleaner.catch_up(2)
    assert made.left == {"2.json"}
    (noted / "2").touch()
    cleaner.end()
    assert made.left == set()


def test_what_was_written_to_since_is_left_alone_and_told(tmp_path: Path) -> None:
    made = Folder(tmp_path)
    file = made.file("a.json")
    made.read(0, file)
    os.utime(file, (1, 1))
    made.cleaner.after(0)
    assert made.left == {"a.json"}
    assert made.events == [FilesKept("c", (str(file),), "written to since they were read, not read again")]


def test_nothing_in_the_archive_is_overwritten(tmp_path: Path) -> None:
    made = Folder(tmp_path)
    made.archive.mkdir()
    (made.archive / "a.json").write_text("theirs")
    (made.archive / "a.json.1").write_text("theirs too")
    os.utime(made.archive / "a.json", (1, 1))
    made.read(0, made.file("a.json", "ours"))
    made.cleaner.after(0)
    assert made.old == {"a.json": "theirs", "a.json.1": "theirs too", "a.json.2": "ours"}
    assert made.left == set()


def test_killed_between_the_two_names(tmp_path: Path) -> None:
    file, target = tmp_path / "a", tmp_path / "old" / "a"
    file.write_text("x")
    target.parent.mkdir()
    os.link(file, target)
    assert move_aside(str(file), str(target)) == str(target)
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == ["a"]
    assert not file.exists()


def test_two_readers_of_a_folder_must_both_have_read_a_file(tmp_path: Path) -> None:
    made = Folder(tmp_path, places=2)
    file = made.file("a.json")
    made.read(0, file, place=0)
    made.read(0, place=1)
    made.cleaner.after(0)
    assert made.left == {"a.json"}
    made.read(1, place=0)
    made.read(1, file, place=1)
    made.cleaner.after(1)
    assert made.left == set()


def test_files_that_were_listed_for_an_epoch_to_come_are_left_where_they_are(tmp_path: Path) -> None:
    """A source with nothing new for some epochs is behind them with its log: its next batch is not theirs."""
    made = Folder(tmp_path, clean="delete")
    first, next_one = made.file("a.json"), made.file("b.json")
    made.log(0, first)
    made.offsets(0, 0)
    made.offsets(1, 0)
    made.log(1, next_one)  # listed for epoch 2, which is killed then
    made.cleaner.after(1)
    assert made.left == {"a.json", "b.json"}
    made.cleaner.catch_up(1)
    assert made.left == {"b.json"}
    made.offsets(2, 1)
    made.cleaner.after(2)
    assert made.left == set()


def test_all_files_of_an_epoch_that_was_listed_twice_are_moved(tmp_path: Path) -> None:
    """Killed between the log and the offsets, a source lists what has come since as one more batch."""
    made = Folder(tmp_path)
    files = [made.file(f"{n}.json") for n in range(3)]
    for number in range(3):
        made.log(number, files[number])
    made.offsets(0, 1)
    made.cleaner.after(0)
    assert made.left == {"2.json"}
    made.offsets(1, 2)
    made.cleaner.catch_up(1)
    assert made.left == set()


def test_a_source_in_two_places_has_one_log(tmp_path: Path) -> None:
    """Between them is another source, whose files are not to be moved."""
    made = Folder(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    (other / "x.json").write_text("x")
    own = Cleaned.of(made.options)
    cleaner = Cleaner("c", made.checkpoint, [own, own, Cleaned.of({"path": str(other)})], made.events.append)
    made.checkpoint.claim(EpochKey("p", "c", 1, 0), "ledger", ("in", "in", "other"), (0, 0, 1))
    made.log(0, made.file("a.json"), place=0)
    made.log(0, other / "x.json", place=1)
    made.offsets(0, 0, 0, 0)
    cleaner.after(0)
    assert made.left == set()
    assert set(made.old) == {"a.json"}
    assert (other / "x.json").exists()
    assert made.events == []


def test_files_of_an_epoch_that_are_gone(tmp_path: Path) -> None:
    """Whatever their batch is called in the log of their source; those of other epochs may be gone."""
    made = Folder(tmp_path)
    files = [made.file(f"{n}.json") for n in range(4)]
    made.log(0, files[0], place=0)
    made.log(0, files[1], place=1)
    made.log(1, files[2], place=1)
    made.log(2, files[3], place=1)
    made.offsets(0, 0, -1)
    made.offsets(1, 0, 1)
    made.offsets(2, 0, 2)
    for epoch, file in ((0, files[0]), (1, files[1]), (1, files[2]), (2, files[3])):
        file.unlink()
        for each in range(3):
            with pytest.raises(DataError, match=file.name) if each == epoch else nullcontext():
                check_files(made.checkpoint, each)
        file.write_text("x")


def test_how_much_an_epoch_reads(tmp_path: Path) -> None:
    made = Folder(tmp_path)
    for place, sizes in enumerate([(1,), (10, 100, 1000)]):
        for number, size in enumerate(sizes):
            file = made.file(f"{place}-{number}.json", "x" * size)
            made.log(number, file, place=place, compact=number == 2)
    made.offsets(0, 0, -1)
    made.offsets(1, 0, 1)
    made.offsets(2, 0, 2)
    made.offsets(3, 0, 2)
    assert [made.checkpoint.input_bytes(epoch) for epoch in range(4)] == [1, 110, 1000, 0]
    assert made.checkpoint.input_bytes(4) is None
    (made.checkpoint.folder / "offsets" / "4").write_text('v1\n{}\n{"logOffset":0}\n{"topic":{"0":7}}')
    assert made.checkpoint.input_bytes(4) is None


@pytest.mark.parametrize("count", [1, 3000])
def test_a_long_list_is_not_read_from_its_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Each tenth batch of a log lists all files that were ever read, its own last."""
    made = Folder(tmp_path)
    made.log(8)
    older, own = ([f"file:///in/{batch}-{n}.json" for n in range(each)] for batch, each in ((8, 20_000), (9, count)))
    lines = [json.dumps({"path": path, "timestamp": 1, "batchId": 8}) for path in older]
    lines += [json.dumps({"path": path, "timestamp": 1, "batchId": 9}) for path in own]
    (made.checkpoint.folder / "sources" / "0" / "9.compact").write_text("\n".join(["v1", *lines]))
    made.offsets(8, 8)
    made.offsets(9, 9)
    parsed: list[Any] = []
    with monkeypatch.context() as counted:
        loads = json.loads
        counted.setattr(json, "loads", lambda text: (parsed.append(text), loads(text))[1])
        found = read_in(made.checkpoint, 0, 9)
    assert [entry["path"] for entry in found] == own
    assert len(parsed) < 2000 + 6 * count
    assert len(read_until(made.checkpoint, 0, 9)) == 20_000 + count


def test_batches_of_an_epoch_that_spark_has_removed_meanwhile(tmp_path: Path) -> None:
    """Where another source fails before the epoch begins, each start adds a batch; more than a hundred, in the end."""
    made = Folder(tmp_path)
    files = [made.file(f"{n}.json") for n in range(12)]
    made.log(9, compact=True)
    whole = made.checkpoint.folder / "sources" / "0" / "9.compact"
    whole.write_text("\n".join(["v1", *(made._entry(file, n) for n, file in enumerate(files[:10]))]))
    made.log(10, files[10])
    made.log(11, files[11])
    made.offsets(0, 10)
    assert [entry["batchId"] for entry in read_in(made.checkpoint, 0, 0)] == list(range(11))
    files[3].unlink()
    with pytest.raises(DataError, match=r"/3\.json"):
        check_files(made.checkpoint, 0)
    made.cleaner.after(0)
    assert made.left == {"11.json"}


def test_what_is_read_in_two_places_is_cleaned_up_without_a_look_at_all_that_was_ever_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(*_: Any) -> Any:
        raise AssertionError("all that was ever read")

    monkeypatch.setattr(archive, "read_until", wrong)
    for name, numbers in (("one", (0, 0)), ("two", (0, 1))):
        (tmp_path / name).mkdir()
        made = Folder(tmp_path / name, places=2)
        made.checkpoint.claim(EpochKey("p", "c", 1, 0), "ledger", ("in", "in"), numbers)
        file = made.file("a.json")
        for number in set(numbers):
            made.log(0, file, place=number)
        made.offsets(0, 0, 0)
        made.cleaner.after(0)
        assert (made.left, made.events) == (set(), [])


def test_which_source_is_which_is_kept_with_the_checkpoint(tmp_path: Path) -> None:
    checkpoint, key = Checkpoint(tmp_path / "checkpoint"), EpochKey("p", "c", 1, 0)
    checkpoint.claim(key, "ledger", ("in", "in", "other"), (0, 0, 1))
    checkpoint.claim(key, "ledger", ("in", "in", "other"), (0, 0, 1))
    assert [checkpoint.log(place).name for place in range(3)] == ["0", "0", "1"]
    with pytest.raises(StateError, match=r"in \(1\)") as told:
        checkpoint.claim(key, "ledger", ("in", "in", "other"), (0, 1, 2))
    assert told.value.code == "SOURCES_CHANGED"
    marker = checkpoint.folder / "anabranch.json"
    older = {name: value for name, value in json.loads(marker.read_text()).items() if name != "numbers"}
    marker.write_text(json.dumps(older))
    with pytest.raises(StateError, match="now they are") as told:
        checkpoint.claim(key, "ledger", ("in", "other"), (0, 1))
    assert told.value.code == "SOURCES_CHANGED"
    checkpoint.claim(key, "ledger", ("in", "in", "other"), (0, 0, 1))
    assert json.loads(marker.read_text())["numbers"] == [0, 0, 1]


def test_trouble_is_told_and_fails_nothing(tmp_path: Path) -> None:
    made = Folder(tmp_path)
    made.read(0, made.file("a.json"))
    made.archive.write_text("a file where the folder should be")
    made.cleaner.after(0)
    assert made.left == {"a.json"}
    [told] = made.events
    assert isinstance(told, FilesKept)
    assert "Error" in told.reason
