"""`/metrics`, for Prometheus."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from anabranch.errors import SetupError
from anabranch.watch.metrics import Meter


def metrics(request: Request) -> Response:
    """All metrics of the project; also to those who come without a browser."""
    meter: Meter = request.app.state.meter
    try:
        content, kind = meter.text(request.headers.get("accept", ""))
    except SetupError as error:
        return PlainTextResponse(f"{error.message}: {error.hint}\n", 501)
    return Response(content, media_type=kind)
