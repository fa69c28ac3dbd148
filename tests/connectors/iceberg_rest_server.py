"""A small Iceberg REST catalogue for tests: pyiceberg's SQL catalogue behind the routes that its client asks."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NamespaceAlreadyExistsError, NoSuchTableError
from pyiceberg.table import CommitTableRequest


@contextmanager
def rest_catalog(folder: Path) -> Iterator[tuple[str, SqlCatalog, list[str]]]:
    """The address of a running server, the catalogue behind it, and what is to go wrong with the next commits.

    "lost" commits and then answers with an error, "refused" does not commit.
    """
    backing = SqlCatalog("rest", uri=f"sqlite:///{folder}/rest.db", warehouse=str(folder / "warehouse"))
    faults: list[str] = []

    class Handler(_Handler):
        catalog, trouble = backing, faults

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", backing, faults
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    catalog: SqlCatalog
    trouble: list[str]

    def do_GET(self) -> None:
        parts = self.path.partition("?")[0].strip("/").split("/")
        if parts == ["v1", "config"]:
            self._answer({"defaults": {}, "overrides": {}})
        else:
            self._table(parts)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        parts = self.path.strip("/").split("/")
        if parts[-1] == "namespaces":
            try:
                self.catalog.create_namespace(tuple(json.loads(body)["namespace"]))
            except NamespaceAlreadyExistsError:
                self._answer({"error": {"message": "there", "type": "AlreadyExistsException", "code": 409}}, 409)
                return
            self._answer({"namespace": json.loads(body)["namespace"], "properties": {}})
        elif parts[-1] == "tables":
            asked = CreateTableRequest.model_validate_json(body)
            properties = {name: value for name, value in asked.properties.items() if value}
            name = (parts[-2], asked.name)
            spec = {"partition_spec": asked.partition_spec} if asked.partition_spec else {}
            self.catalog.create_table(name, asked.table_schema, asked.location, properties=properties, **spec)
            self._table([*parts, asked.name])
        else:
            self._commit(parts, body)

    def do_DELETE(self) -> None:
        parts = self.path.partition("?")[0].strip("/").split("/")
        self.catalog.drop_table((parts[-3], parts[-1]))
        self._answer({}, 204)

    def _commit(self, parts: list[str], body: bytes) -> None:
        fault = self.trouble.pop(0) if self.trouble else ""
        asked = CommitTableRequest.model_validate_json(body)
        if fault != "refused":
            table = self.catalog.load_table((parts[-3], parts[-1]))
            try:
                made = self.catalog.commit_table(table, asked.requirements, asked.updates)
            except CommitFailedException as error:
                self._answer({"error": {"message": str(error), "type": "CommitFailedException", "code": 409}}, 409)
                return
        if fault:
            self._answer({"error": {"message": fault, "type": "CommitStateUnknownException", "code": 500}}, 500)
        else:
            self._answer(json.loads(made.model_dump_json()))

    def _table(self, parts: list[str]) -> None:
        try:
            table = self.catalog.load_table((parts[-3], parts[-1]))
        except NoSuchTableError as error:
            self._answer({"error": {"message": str(error), "type": "NoSuchTableException", "code": 404}}, 404)
            return
        metadata = json.loads(table.metadata.model_dump_json())
        self._answer({"metadata-location": table.metadata_location, "metadata": metadata, "config": {}})

    def _answer(self, what: dict[str, Any], status: int = 200) -> None:
        raw = json.dumps(what).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 the name it has there
        """Tests are quiet."""
