"""Hold a channel's lease for as long as this process works on it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from anabranch.engine.opened import Opened
from anabranch.errors import AnabranchError
from anabranch.store.ledger import Lease, Ledger


class Heartbeat:
    """Keeps a lease alive from a thread of its own; `lost` is set, with the reason, when another process took it."""

    def __init__(self, ledger: Ledger, lease: Lease, seconds: float) -> None:
        self.error: AnabranchError | None = None
        self._ledger, self._lease, self._every = ledger, lease, seconds / 3
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._beat, name=f"lease-{lease.channel}", daemon=True)
        self._thread.start()

    def _beat(self) -> None:
        while not self._done.wait(self._every):
            try:
                self._ledger.renew(self._lease)
            except AnabranchError as error:
                # A ledger that cannot be reached for a moment has not given the lease to anybody.
                if not error.retryable:
                    self.error = error
                    return

    def lost(self) -> AnabranchError | None:
        """Why the lease is not ours any more, asking the ledger; None while it is ours, or the ledger is silent."""
        try:
            self._ledger.renew(self._lease)
        except AnabranchError as error:
            return None if error.retryable else error
        return None

    def stop(self) -> None:
        """No more renewals."""
        self._done.set()
        self._thread.join()


@contextmanager
def lease(opened: Opened, channel: str) -> Iterator[tuple[Lease, Heartbeat]]:
    """The channel's lease, kept alive until it is given back."""
    seconds = opened.project.lease_seconds
    held = opened.ledger.acquire(opened.pipeline.pipeline_id, channel, seconds=seconds)
    heartbeat = Heartbeat(opened.ledger, held, seconds)
    try:
        yield held, heartbeat
    finally:
        heartbeat.stop()
        opened.ledger.release(held)
