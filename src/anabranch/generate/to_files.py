"""Rows into a folder: JSON lines, documents and Parquet, each entity in a folder of its own."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from anabranch.errors import ProjectError
from anabranch.generate import dimensions
from anabranch.generate.entities import Entity
from anabranch.generate.files import numbered, overlapping, whole
from anabranch.generate.rows import document, lines
from anabranch.generate.run import Made, Piece, Wanted, slices
from anabranch.generate.text import joined, raw

#: The faults of each file, beside them. Spark and others pass over names that begin so.
MANIFEST = "_faults.json"
_STEMS = {"request_event": "events"}


@dataclass(slots=True)
class FolderTarget:
    """Writes `<folder>/<entity>/<entity>-<first>-<after>.json` or `.parquet`; request events right into the folder."""

    folder: Path
    manifests: dict[Path, dict[str, Any]] = field(default_factory=dict)

    def refuse_doubles(self, wanted: Wanted) -> None:
        """An error if rows that shall be written are in files that would stay."""
        if not any(self.place(e).is_dir() and any(self.place(e).iterdir()) for e in wanted.entities):
            return
        ranges: dict[str, list[tuple[int, int]]] = {}
        for _, pieces in slices(wanted):
            for piece in pieces:
                ranges.setdefault(piece.entity.name, []).append((piece.first, piece.after))
        for entity in wanted.entities:
            there = overlapping(self.place(entity), _stem(entity), ranges.get(entity.name, []))
            if there:
                raise ProjectError(
                    "GEN_ROWS_THERE_ALREADY",
                    f"{self.place(entity) / there[0]} holds some of these rows already, divided into files otherwise",
                    hint="go on after them with --start, write elsewhere with --out, or remove them first",
                )

    def place(self, entity: Entity) -> Path:
        """The folder of an entity's files."""
        return self.folder if entity.name in _STEMS else self.folder / entity.name

    def write(self, piece: Piece, wanted: Wanted) -> Made:
        folder = self.place(piece.entity)
        folder.mkdir(parents=True, exist_ok=True)
        suffix = "parquet" if piece.entity.form == "parquet" else "json"
        path = folder / numbered(_stem(piece.entity), piece.first, piece.after, suffix)
        with whole(path) as out:
            written, faults = _WRITERS[piece.entity.form](out, piece, wanted)
            size = out.tell()
        made = Made(piece.after - piece.first, written, 1, size, faults)
        self._note(folder, path.name, made, wanted)
        return made

    def end_slice(self) -> None:
        """The manifests are written after the files of each slice."""
        for folder, entries in self.manifests.items():
            with whole(folder / MANIFEST) as out:
                out.write(json.dumps({"files": dict(sorted(entries.items()))}, indent=2).encode() + b"\n")

    def _note(self, folder: Path, name: str, made: Made, wanted: Wanted) -> None:
        if folder not in self.manifests:
            there = folder / MANIFEST
            if not wanted.faults.asked() and not there.is_file():
                return
            known = json.loads(there.read_bytes())["files"] if there.is_file() else {}
            self.manifests[folder] = {n: entry for n, entry in known.items() if (folder / n).is_file()}
        entry = {"rows": made.rows, "written": made.written, "faults": dict(sorted(made.faults.items()))}
        self.manifests[folder][name] = entry


def _stem(entity: Entity) -> str:
    return _STEMS.get(entity.name, entity.name)


def _write_lines(out: BinaryIO, piece: Piece, wanted: Wanted) -> tuple[int, Counter[str]]:
    written, faults = 0, Counter[str]()
    for rows in lines(piece.entity, wanted.seed, piece.first, piece.after, wanted.faults):
        out.write(raw(rows.texts))
        written += len(rows.texts)
        faults.update(rows.faults)
    return written, faults


def _write_document(out: BinaryIO, piece: Piece, wanted: Wanted) -> tuple[int, Counter[str]]:
    made = document(piece.entity, wanted.seed, piece.first, piece.after, wanted.faults)
    texts = made.rows.texts
    body = joined(texts[:-1], ",\n")
    out.write(made.head.encode())
    out.write(raw(body))
    if made.broken:
        out.write(texts[-1].as_py().encode()[:-10])
    else:
        out.write(texts[-1].as_py().encode() + made.tail.encode())
    return len(texts), made.rows.faults


def _write_table(out: BinaryIO, piece: Piece, wanted: Wanted) -> tuple[int, Counter[str]]:
    import pyarrow.parquet as pq

    table = dimensions.table(piece.entity.name, wanted.seed)
    pq.write_table(table, out, compression="zstd")
    return table.num_rows, Counter()


_WRITERS: Mapping[str, Any] = {"lines": _write_lines, "documents": _write_document, "parquet": _write_table}
