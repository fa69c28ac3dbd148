"""The page of a project, served by a real server on a free port of this machine."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from anabranch.load.project import read_project
from anabranch.ui.server import listen, make_server


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """The address of the page, while the block runs."""
    taken = listen("127.0.0.1", 0)
    server = make_server(read_project(folder), "127.0.0.1")
    thread = threading.Thread(target=server.run, kwargs={"sockets": [taken]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"
    finally:
        server.should_exit = True
        server.force_exit = True  # a browser may still hold its connections
        thread.join()
        taken.close()
