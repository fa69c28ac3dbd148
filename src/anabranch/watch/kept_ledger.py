"""A project's ledger for those who look again and again: opening it reads all of it."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from anabranch.load.project import Project
from anabranch.read import open_ledger
from anabranch.store.ledger import Ledger

_Stamp = tuple[int, int] | None


class KeptLedger:
    """The ledger of a project, opened when it is first asked for, and again when its file is another one."""

    def __init__(self, project: Project) -> None:
        self._project, self._open = project, ExitStack()
        self._ledger: tuple[Ledger, str] | None = None
        self._opened_as: tuple[_Stamp, ...] = ()

    def opened(self) -> tuple[Ledger, str]:
        """The ledger and the pipeline's id in it."""
        now = (_stamp(Path(self._project.storage) / "_anabranch" / "identity.json"), _stamp(Path(self._project.ledger)))
        if self._ledger is None or now != self._opened_as:
            self.close()
            ledger, pipeline = self._open.enter_context(open_ledger(self._project))
            self._ledger, self._opened_as = (ledger, pipeline.pipeline_id), now
        return self._ledger

    def close(self) -> None:
        """Give it back."""
        self._open.close()
        self._ledger = None


def _stamp(path: Path) -> _Stamp:
    """Which file it is; None for none, and for an address."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
