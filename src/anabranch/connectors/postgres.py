"""Open the sink of a Postgres table, with an answer for whoever has not installed the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.connectors.postgres_database import check_driver

if TYPE_CHECKING:
    from anabranch.connectors.contract import SinkSpec
    from anabranch.connectors.postgres_sink import PostgresSink


def open_postgres(spec: SinkSpec) -> PostgresSink:
    """The sink of a table in Postgres."""
    check_driver()
    from anabranch.connectors.postgres_sink import PostgresSink

    return PostgresSink(spec)
