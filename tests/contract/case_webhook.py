"""Webhooks under the contract, as an epoch that waits for the receiver sees them; it is known by what it was sent."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from contract_case import Case

from anabranch.connectors.contract import SinkSpec

sys.path.insert(0, str(Path(__file__).parents[1] / "servers"))
from webhook_receiver import Receiver

#: The receivers of the tests that run, by their address.
_RECEIVERS: dict[str, Receiver] = {}


class WebhookCase(Case):
    def target(self, request: pytest.FixtureRequest, folder: Path) -> SinkSpec:
        receiver = Receiver().__enter__()
        request.addfinalizer(receiver.__exit__)
        _RECEIVERS[receiver.url] = receiver
        options = {"url": receiver.url, "on_failure": "block", "tries": "1", "batch": "1"}
        return SinkSpec("out", "webhook://out", "p-1", str(folder), options)

    def rows(self, spec: SinkSpec) -> list[dict[str, Any]]:
        taken = _RECEIVERS[spec.options["url"]].taken.values()
        return [{k: v for k, v in row.items() if v is not None} for body in taken for row in body["rows"]]

    @contextlib.contextmanager
    def refusing(self, spec: SinkSpec) -> Iterator[None]:
        receiver = _RECEIVERS[spec.options["url"]]
        receiver.always = 500
        try:
            yield
        finally:
            receiver.always = 200


CASE = WebhookCase("webhook", __name__)
