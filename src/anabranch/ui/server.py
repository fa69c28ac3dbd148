"""The server: its addresses, what becomes of errors, and how it is started."""

from __future__ import annotations

import socket
from collections.abc import Callable

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from anabranch.errors import SetupError
from anabranch.load.project import Project
from anabranch.ui.datasets import dataset, datasets, graph, graph_data, preview
from anabranch.ui.dead_letters import dead_letters
from anabranch.ui.epochs import epoch, epochs
from anabranch.ui.events import events, runs, tail
from anabranch.ui.guard import Guard
from anabranch.ui.metrics import metrics
from anabranch.ui.overview import dead_letter_total, overview
from anabranch.ui.plots import plot
from anabranch.ui.render import STATIC, page, sight_of
from anabranch.ui.sight import Look, Sight
from anabranch.watch.metrics import Meter

ROUTES = (
    Route("/", overview),
    Route("/graph", graph),
    Route("/graph.json", graph_data),
    Route("/datasets", datasets),
    Route("/datasets/{name}", dataset),
    Route("/datasets/{name}/preview", preview),
    Route("/epochs", epochs),
    Route("/epochs/{channel}/{generation:int}/{epoch:int}", epoch),
    Route("/events", events),
    Route("/events/tail", tail),
    Route("/runs", runs),
    Route("/dead-letters", dead_letters),
    Route("/dead-letters/total", dead_letter_total),
    Route("/plots/{name}.json", plot),
    Route("/metrics", metrics),
    Route("/favicon.ico", lambda _: FileResponse(STATIC / "favicon.svg")),  # what browsers ask for beside plain text
    Route("/health", lambda _: PlainTextResponse("ok\n")),
)


def make_app(project: Project, bound: str = "127.0.0.1") -> Starlette:
    """The page of a project, to be served at the address `bound`."""
    app = Starlette(
        routes=[*ROUTES, Mount("/static", StaticFiles(directory=STATIC))],
        middleware=[Middleware(Guard, bound=bound)],
        exception_handlers={HTTPException: _refused, Exception: _failed},
    )
    app.state.sight = Sight(project)
    app.state.meter = Meter(project)
    app.state.sight.declarations.look()  # it takes a moment: begin before somebody asks
    return app


def serve(project: Project, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Serve the page until Ctrl-C; `ready` is called with its address once it can be opened."""
    taken = listen(host, port)
    name = f"[{host}]" if ":" in host else "127.0.0.1" if host == "0.0.0.0" else host
    address = f"http://{name}:{taken.getsockname()[1]}/"
    ready(address)
    make_server(project, host).run(sockets=[taken])


def make_server(project: Project, host: str) -> uvicorn.Server:
    """The server of a project's page; it does not wait long for browsers that keep their connections."""
    return uvicorn.Server(
        uvicorn.Config(
            make_app(project, host),
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="off",
            timeout_graceful_shutdown=1,
        )
    )


def listen(host: str, port: int) -> socket.socket:
    """A socket at this address; port 0 takes any that is free."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise SetupError(
            "PORT_TAKEN",
            f"the page cannot be served at {host}:{port}: {error.strerror or error}",
            hint="name another: anabranch ui --port 0 takes any that is free",
        ) from error


def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code != 404 or request.url.path.startswith("/static/"):
        return PlainTextResponse(f"{error.detail}\n", error.status_code, headers=error.headers)
    look = Look(sight_of(request))
    return page(request, "missing.html", look, status=404, nav="", what="There is no page at this address")


def _failed(request: Request, error: Exception) -> Response:
    """The last resort; Starlette lets the error itself go on to the log."""
    text = f"{type(error).__name__}: {error}"
    return page(request, "failed.html", Look(sight_of(request)), status=500, nav="", what=text)
