"""The cache of jars: what is taken for whole, what is repaired, and what is said when it cannot be."""

from __future__ import annotations

import errno
import hashlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from anabranch.engine import ivy, jars
from anabranch.engine.ivy import Jar
from anabranch.errors import SetupError

CONTENTS = {"one": b"1" * 1000, "two": b"2" * 2000, "three": b"3" * 3000}
WANTED = tuple(
    Jar("org.example", name, "1.0", len(data), hashlib.sha256(data).hexdigest()) for name, data in CONTENTS.items()
)


class Server:
    """Fetches from memory and remembers what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def __call__(self, wanted: Sequence[Jar], folder: Path) -> None:
        self.asked.append([jar.artifact for jar in wanted])
        for jar in wanted:
            (folder / jar.file_name).write_bytes(CONTENTS[jar.artifact])


def nothing_answers(wanted: Sequence[Jar], folder: Path) -> None:
    raise ivy.download_failed([jar.file_name for jar in wanted], "no network")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "jars" / "0123"


@pytest.fixture
def filled(folder: Path) -> Path:
    jars.resolve(fetch=Server(), wanted=WANTED, folder=folder)
    return folder


def left_beside(folder: Path) -> set[str]:
    return {path.name for path in folder.parent.iterdir()} - {folder.name, f"{folder.name}.lock"}


def test_an_empty_cache_is_filled_once_and_then_needs_no_network(folder: Path) -> None:
    said: list[str] = []
    paths = jars.resolve(fetch=Server(), wanted=WANTED, folder=folder, progress=said.append)
    assert [path.read_bytes() for path in paths] == list(CONTENTS.values())
    assert said[0].startswith("fetching 3 jars once, 0 MB")
    assert left_beside(folder) == set()
    assert jars.resolve(fetch=nothing_answers, wanted=WANTED, folder=folder) == paths


def test_a_download_cut_half_way_leaves_no_cache(folder: Path) -> None:
    def cut(wanted: Sequence[Jar], into: Path) -> None:
        (into / wanted[0].file_name).write_bytes(CONTENTS["one"])
        (into / wanted[1].file_name).write_bytes(CONTENTS["two"][:700])
        raise ivy.download_failed([wanted[1].file_name], "connection reset")

    with pytest.raises(SetupError, match=r"two-1\.0\.jar") as caught:
        jars.resolve(fetch=cut, wanted=WANTED, folder=folder)
    assert caught.value.code == "JARS_DOWNLOAD_FAILED"
    assert caught.value.retryable
    assert caught.value.hint
    assert not folder.exists()
    assert left_beside(folder) == set()
    assert len(jars.resolve(fetch=Server(), wanted=WANTED, folder=folder)) == 3


def test_a_fetch_that_ends_well_but_brings_too_little_is_not_believed(folder: Path) -> None:
    def lazy(wanted: Sequence[Jar], into: Path) -> None:
        (into / wanted[0].file_name).write_bytes(CONTENTS["one"])

    with pytest.raises(SetupError, match=r"two-1\.0\.jar, three-1\.0\.jar") as caught:
        jars.resolve(fetch=lazy, wanted=WANTED, folder=folder)
    assert caught.value.code == "JARS_DOWNLOAD_FAILED"
    assert not folder.exists()


@pytest.mark.parametrize("served", [b"9" * 2000, b"", CONTENTS["two"] + b"2"], ids=["altered", "empty", "longer"])
def test_a_download_that_is_not_the_locked_file_is_refused(folder: Path, served: bytes) -> None:
    def altered(wanted: Sequence[Jar], into: Path) -> None:
        Server()(wanted, into)
        (into / "two-1.0.jar").write_bytes(served)

    with pytest.raises(SetupError, match=r"two-1\.0\.jar") as caught:
        jars.resolve(fetch=altered, wanted=WANTED, folder=folder)
    assert caught.value.code == "JAR_CORRUPT"
    assert not folder.exists()


def flip_a_bit(path: Path) -> None:
    before = path.stat()
    data = bytearray(path.read_bytes())
    data[777] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # as a failing disk would do it


def cut_short(path: Path) -> None:
    os.truncate(path, 500)


def replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("harm", [flip_a_bit, cut_short, Path.unlink])
def test_a_damaged_or_missing_jar_is_fetched_again_alone(filled: Path, harm: object) -> None:
    assert callable(harm)
    harm(filled / "two-1.0.jar")
    server, said = Server(), list[str]()
    paths = jars.resolve(fetch=server, wanted=WANTED, folder=filled, progress=said.append)
    assert server.asked == [["two"]]
    assert [path.read_bytes() for path in paths] == list(CONTENTS.values())
    assert any("two-1.0.jar" in line for line in said) == (harm is not Path.unlink)
    assert left_beside(filled) == set()


@pytest.mark.parametrize("harm", [flip_a_bit, cut_short])
def test_a_damaged_jar_that_cannot_be_fetched_again_is_named(filled: Path, harm: object) -> None:
    assert callable(harm)
    harm(filled / "two-1.0.jar")
    with pytest.raises(SetupError) as caught:
        jars.resolve(fetch=nothing_answers, wanted=WANTED, folder=filled)
    assert caught.value.code == "JAR_CORRUPT"
    assert str(filled / "two-1.0.jar") in caught.value.message
    assert caught.value.hint


def test_something_else_in_the_place_of_a_jar_is_an_error_that_names_it(filled: Path) -> None:
    replace_by_folder(filled / "two-1.0.jar")
    with pytest.raises(SetupError, match=r"two-1\.0\.jar") as caught:
        jars.resolve(fetch=Server(), wanted=WANTED, folder=filled)
    assert caught.value.code == "CACHE_NOT_WRITABLE"


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, "CACHE_FULL"),
        (errno.EDQUOT, "CACHE_FULL"),
        (errno.EROFS, "CACHE_NOT_WRITABLE"),
        (errno.EACCES, "CACHE_NOT_WRITABLE"),
    ],
)
def test_a_full_or_read_only_disk_is_told_apart_and_named(folder: Path, number: int, code: str) -> None:
    def failing(wanted: Sequence[Jar], into: Path) -> None:
        raise OSError(number, os.strerror(number), str(into / wanted[0].file_name))

    with pytest.raises(SetupError, match=r"one-1\.0\.jar") as caught:
        jars.resolve(fetch=failing, wanted=WANTED, folder=folder)
    assert caught.value.code == code
    assert jars.CACHE_VARIABLE in str(caught.value.hint)
    assert not folder.exists()


def test_a_file_where_the_cache_should_be_is_not_writable(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("not a folder")
    with pytest.raises(SetupError, match=str(tmp_path / "cache")) as caught:
        jars.resolve(fetch=Server(), wanted=WANTED, folder=tmp_path / "cache" / "jars" / "0123")
    assert caught.value.code == "CACHE_NOT_WRITABLE"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_cache_without_the_right_to_write(filled: Path) -> None:
    filled.parent.chmod(0o555)
    try:
        assert len(jars.resolve(fetch=nothing_answers, wanted=WANTED, folder=filled)) == 3
        with pytest.raises(SetupError) as caught:
            jars.resolve(fetch=Server(), wanted=WANTED, folder=filled.with_name("4567"))
        assert caught.value.code == "CACHE_NOT_WRITABLE"
    finally:
        filled.parent.chmod(0o755)


CHILD = """
import sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
import test_jars as t
from anabranch.engine import jars
folder, how = Path(sys.argv[1]), sys.argv[2]
def fetch(wanted, into):
    (into / wanted[0].file_name).write_bytes(t.CONTENTS["one"])
    with (folder.parent / "fetches").open("a") as log:
        log.write("x")
    print("fetching", flush=True)
    if how == "hang":
        time.sleep(600)
    sys.stdin.read()
    t.Server()(wanted, into)
jars.resolve(fetch=fetch, wanted=t.WANTED, folder=folder,
             progress=lambda line: print(line, flush=True) if "waiting" in line else None)
print("done", flush=True)
"""


def start(folder: Path, how: str) -> subprocess.Popen[str]:
    program = CHILD.format(tests=str(Path(__file__).parent))
    return subprocess.Popen(
        [sys.executable, "-c", program, str(folder), how], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def next_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_of_two_processes_one_fetches_and_the_other_waits(folder: Path) -> None:
    with start(folder, "wait") as first, start(folder, "wait") as second:
        lines: dict[subprocess.Popen[str], str] = {}
        readers = [threading.Thread(target=lambda p=p: lines.update({p: next_line(p)})) for p in (first, second)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        assert sorted(lines.values()) == ["another process is fetching the jars: waiting for it", "fetching"]
        assert not folder.exists()
        for process in (first, second):
            assert process.stdin is not None
            process.stdin.close()
        assert [next_line(first), next_line(second)] == ["done", "done"]
        assert (first.wait(), second.wait()) == (0, 0)
    assert (folder.parent / "fetches").read_text() == "x"
    assert jars.faults(WANTED, folder) == []


def test_a_process_killed_while_fetching_leaves_nothing_that_is_taken_for_a_cache(folder: Path) -> None:
    with start(folder, "hang") as process:
        assert next_line(process) == "fetching"
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert left_beside(folder) - {"fetches"} != set()
    assert not folder.exists()
    server = Server()
    jars.resolve(fetch=server, wanted=WANTED, folder=folder)
    assert server.asked == [["one", "two", "three"]]
    assert left_beside(folder) == {"fetches"}


def test_the_cache_is_where_the_variable_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(jars.CACHE_VARIABLE, str(tmp_path))
    assert jars.cache_folder().parent == tmp_path / "jars"
    monkeypatch.delenv(jars.CACHE_VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    if sys.platform == "linux":
        assert jars.cache_folder().parent == tmp_path / "user" / "anabranch" / "jars"


def test_the_lock_names_each_file_once_with_a_whole_hash() -> None:
    locked = jars.locked()
    assert len({jar.file_name for jar in locked}) == len(locked) == 15
    assert all(len(jar.sha256) == 64 and jar.size > 10_000 for jar in locked)


def test_without_java_nothing_is_fetched(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SetupError) as caught:
        jars.resolve(wanted=WANTED, folder=folder)
    assert caught.value.code == "JAVA_MISSING"


@pytest.mark.parametrize("exit_code", [0, 1])
def test_a_java_that_brings_nothing_is_a_failed_download(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, exit_code: int
) -> None:
    """A Java that knows its version and nothing else stands for an Ivy that fails, or claims not to."""
    fake_java(tmp_path, f'[ "$1" = -version ] && echo \'openjdk version "17.0.1"\' >&2 && exit 0; exit {exit_code}')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SetupError, match=r"one-1\.0\.jar") as caught:
        jars.resolve(wanted=WANTED, folder=folder)
    assert caught.value.code == "JARS_DOWNLOAD_FAILED"


def test_a_dead_connection_is_given_up(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(
        tmp_path, '[ "$1" = -version ] && echo \'openjdk version "17.0.1"\' >&2 && exit 0; echo ..; exec sleep 60'
    )
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(ivy, "SILENCE_SECONDS", 0.3)
    with pytest.raises(SetupError, match="no answer") as caught:
        jars.resolve(wanted=WANTED, folder=folder)
    assert caught.value.code == "JARS_DOWNLOAD_FAILED"


def fake_java(home: Path, script: str) -> None:
    (home / "bin").mkdir()
    (home / "bin" / "java").write_text(f"#!/bin/sh\n{script}\n")
    (home / "bin" / "java").chmod(0o755)
