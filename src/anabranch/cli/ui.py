"""`anabranch ui`: the web page of a project."""

from __future__ import annotations

from typing import Annotated

import typer

from anabranch.cli.verb import Invocation


def ui(
    at: Invocation,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="The port; 0 takes any that is free.")] = 4040,
    host: Annotated[str, typer.Option("--host", help="The address to serve at.")] = "127.0.0.1",
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open a browser.")] = False,
) -> None:
    """Serve a web page of the pipeline, while it runs and when it does not, until Ctrl-C. The page writes nothing."""
    import webbrowser

    from anabranch.load.project import read_project

    try:
        from anabranch.ui.guard import is_loopback
        from anabranch.ui.server import serve
    except ImportError as error:
        if error.name is None or error.name.partition(".")[0] not in ("jinja2", "starlette", "uvicorn"):
            raise
        from anabranch.errors import SetupError

        text = f"the web page needs a package that is not installed: {error.name}"
        raise SetupError("EXTRA_MISSING", text, hint="pip install 'anabranch[ui]'") from error

    def ready(address: str) -> None:
        at.out.event(
            {"event": "page_served", "address": address}, [(f"{address}  ", "bold"), ("Ctrl-C ends it", "dim")]
        )
        if not is_loopback(host):
            at.out.note(f"whoever can reach {host} can read the data of this project there")
        if not no_open:
            webbrowser.open(address)

    try:
        serve(read_project(at.project), host, port, ready)
    except KeyboardInterrupt:
        return  # the way to end it
