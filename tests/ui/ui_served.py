"""The page of a project, served by a real server on a free port of this machine; and what is read of it."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path

from httpx import Client

from anabranch.load.project import read_project
from anabranch.ui.server import listen, make_server

#: The pages that the head of each leads to.
PAGES = ("/", "/graph", "/datasets", "/epochs", "/runs", "/events", "/dead-letters")


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


@contextmanager
def client(folder: Path) -> Iterator[Client]:
    """Somebody who asks for pages of a project."""
    with serving(folder) as address, Client(base_url=address, timeout=60.0) as found:
        yield found


class Reader(HTMLParser):
    """What somebody who cannot see a page depends on."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.headings: list[int] = []
        self.faults: list[str] = []
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = dict(attrs)
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag == "th" and said.get("scope") not in ("col", "row"):
            self.faults.append(f"th without scope at {self.getpos()}")
        if tag == "svg" and said.get("aria-hidden") != "true" and not said.get("aria-label"):
            self.faults.append(f"svg without a label at {self.getpos()}")
        if tag == "script" and "src" not in said:
            self.faults.append("a script inside the page")
        if "style" in said or any(name.startswith("on") for name in said):
            self.faults.append(f"style or script in an attribute at {self.getpos()}")
        if (one := said.get("id")) is not None:
            self.faults += [f"id {one} twice"] if one in self.ids else []
            self.ids.add(one)
        for name in ("href", "src", "action", "hx-get", "data-plot"):
            if value := said.get(name):
                self.links.append(value)
