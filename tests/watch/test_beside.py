"""The one boundary between a run and those who watch it: whatever they raise, the run goes on."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from anabranch.core.events import Event, Notice, NotSent
from anabranch.load.project import project_at
from anabranch.watch import attached as attaching
from anabranch.watch import beside
from anabranch.watch.attached import attached
from anabranch.watch.beside import Complain, Watcher

Make = Callable[[Complain], Watcher]


class Watching:
    """A watcher that raises where it is told to."""

    def __init__(self, raises: str = "", hold: threading.Event | None = None) -> None:
        self.raises, self.hold = raises, hold
        self.takes = threading.Event()
        self.seen: list[object] = []

    def _pass(self, step: str, what: object) -> None:
        self.seen.append(what)
        if self.raises == step:
            raise RuntimeError(f"in {step}")

    def begin(self, at: float) -> None:
        self._pass("begin", "begin")

    def take(self, at: float, event: Event) -> None:
        self.takes.set()
        if self.hold:
            assert self.hold.wait(120)
        self._pass("take", event)

    def end(self, at: float, error: BaseException | None, patience: float) -> None:
        self._pass("end", error)

    def lost(self) -> int:
        return 0


@pytest.fixture
def watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Event]]:
    """Runs something with a watcher beside it; what was heard."""

    def run(
        make: Make, *events: Event, error: BaseException | None = None, then: Callable[[], object] = lambda: None
    ) -> list[Event]:
        monkeypatch.setattr(attaching, "watchers_of", lambda _: {"test": make})
        heard: list[Event] = []
        with attached(project_at(tmp_path, "shop"), heard.append) as listen:
            for event in events:
                listen(event)
            then()
            if error:
                raise error
        return heard

    return run


A, B = Notice("a"), Notice("b")


def test_a_watcher_sees_everything_in_its_order(watch: Callable[..., list[Event]]) -> None:
    one = Watching()
    assert watch(lambda _: one, A, B) == [A, B]
    assert one.seen == ["begin", A, B, None]


def test_a_watcher_is_told_how_the_run_ended(watch: Callable[..., list[Event]]) -> None:
    one, error = Watching(), KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        watch(lambda _: one, A, error=error)
    assert one.seen == ["begin", A, error]


@pytest.mark.parametrize(("step", "lost"), [("begin", 1), ("take", 2), ("end", 1)])
def test_whatever_it_raises_is_told_once_and_the_run_goes_on(
    watch: Callable[..., list[Event]], step: str, lost: int
) -> None:
    one = Watching(step)
    heard = watch(lambda _: one, A, B)
    assert [e for e in heard if not isinstance(e, NotSent)] == [A, B]
    told = [e for e in heard if isinstance(e, NotSent)]
    assert [e.message for e in told] == [
        f"cannot be sent, the run goes on: RuntimeError: in {step}",
        f"{lost} could not be sent",
    ]
    assert [(e.to, e.lost) for e in told] == [("test", 0), ("test", lost)]
    assert one.seen == ["begin", A, B, None]


def test_one_that_cannot_be_made(watch: Callable[..., list[Event]]) -> None:
    def make(_: Complain) -> Watcher:
        raise PermissionError(13, "Permission denied", "/x")

    told = [e for e in watch(make, A, B) if isinstance(e, NotSent)]
    assert [e.message for e in told] == [
        "cannot be sent, the run goes on: Permission denied: /x",
        "2 could not be sent",
    ]


def test_the_end_of_a_run_does_not_wait_for_one_that_hangs(
    watch: Callable[..., list[Event]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attaching, "PATIENCE", 0.3)
    hold = threading.Event()
    one = Watching(hold=hold)
    began = time.monotonic()
    heard = watch(lambda _: one, *(Notice(str(n)) for n in range(5)), then=lambda: one.takes.wait(120))
    assert time.monotonic() - began < 60
    assert [e.lost for e in heard if isinstance(e, NotSent)] == [4]
    hold.set()  # whoever was left behind does not go on
    (thread,) = (t for t in threading.enumerate() if t.name == "anabranch-test")
    thread.join(120)
    assert not thread.is_alive()
    assert len(one.seen) == 2


def test_a_queue_that_is_full_drops_the_oldest(
    watch: Callable[..., list[Event]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beside, "MOST_WAITING", 10)
    hold = threading.Event()
    one = Watching(hold=hold)
    notices = [Notice(str(n)) for n in range(1000)]
    heard = watch(lambda _: one, *notices, then=hold.set)  # that comes only if no event waits for the watcher
    assert one.seen[-11:] == [*notices[-10:], None]
    (told,) = (e for e in heard if isinstance(e, NotSent))
    assert told.lost == 1000 - (len(one.seen) - 2)


def test_one_that_takes_long_to_be_made_holds_a_run_up_for_a_moment_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold, watcher = threading.Event(), Watching()

    def make(_: Complain) -> Watcher:
        assert hold.wait(120)
        return watcher

    monkeypatch.setattr(attaching, "watchers_of", lambda _: {"slow": make})
    monkeypatch.setattr(attaching, "MAKING", 0.1)
    began = time.monotonic()
    with attached(project_at(tmp_path, "shop"), lambda _: None) as listen:
        assert 0.1 <= time.monotonic() - began < 60
        listen(Notice("on the way"))
        hold.set()
    assert watcher.seen == ["begin", Notice("on the way"), None]  # and nothing is lost of it


PROGRAM = """
import sys
from pathlib import Path
from anabranch.load.project import read_project
from anabranch.watch.attached import attached

with attached(read_project(Path(sys.argv[1])), print):
    print("requests" in sys.modules and "anabranch.watch.open_lineage_transport" in sys.modules)
"""


def test_libraries_are_imported_before_the_files_of_the_project(tmp_path: Path) -> None:
    """A file called `requests.py`, which the exporter of spans imports as well, must not be taken for the library."""
    spec = "name: shop\nopen_lineage: {file: l.jsonl}\nspans: {endpoint: 'http://127.0.0.1:1'}\n"
    (tmp_path / "anabranch.yml").write_text(spec)
    (tmp_path / "transformations").mkdir()
    (tmp_path / "transformations" / "requests.py").write_text("")
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0] == "True"
