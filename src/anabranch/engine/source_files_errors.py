"""Files that Spark could not read, told with the file's name and a way out."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

from anabranch.engine.source_files import MALFORMED
from anabranch.engine.source_files_log import is_local, local_path, read_in
from anabranch.errors import DataError

if TYPE_CHECKING:
    from anabranch.engine.checkpoint import Checkpoint

_FAILED = re.compile(r"\[FAILED_READ_FILE\.(\w+)\][^\n]*?(file:/\S+?|\w+://\S+?)\.?\s+(?:[A-Z]|SQLSTATE)")
_RAISED = re.compile(re.escape(MALFORMED) + r"(\S+)")
_CAUSE = re.compile(r"^Caused by: (?:[\w.$]+\.)?(\w+(?:Exception|Error)): ?(.*)$", flags=re.MULTILINE)


def unreadable_file(error: Exception) -> DataError | None:
    """The error of a file that cannot be read, if that is what Spark's error tells of.

    >>> text = "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///in/a%20b.gz. SQLSTATE: KD001"
    >>> unreadable_file(RuntimeError(text + "\\nCaused by: java.io.EOFException: Unexpected end")).message
    '/in/a b.gz cannot be read: EOFException: Unexpected end'
    >>> unreadable_file(RuntimeError("no")) is None
    True
    """
    text = str(error)
    failed, raised = _FAILED.search(text), _RAISED.search(text)
    if failed is None and raised is None:
        return None
    file = _plain(failed[2] if failed else raised[1])  # type: ignore[index]
    if raised or "MALFORMED_RECORD_IN_PARSING" in text or "MALFORMED_CSV_RECORD" in text:
        return DataError(
            "SOURCE_RECORD_MALFORMED",
            f"{file} has a record that is not what the schema says; nothing of the epoch was written",
            hint="mend the file, or keep such records apart: dead_letters=True and @sources.dead_letters",
        )
    if failed and failed[1] == "FILE_NOT_EXIST":
        return gone([file])
    causes = _CAUSE.findall(text)
    why = ": ".join(part for part in causes[-1] if part) if causes else "Spark does not say why"
    return DataError(
        "SOURCE_FILE_UNREADABLE",
        f"{file} cannot be read: {why}",
        hint="put a whole file of the same name in its place and run again; an empty one gives its rows up "
        "(for Parquet and Avro: one without rows)",
    )


def gone(files: list[str]) -> DataError:
    """Files that an epoch has to read and that are not there any more."""
    others = f" and {len(files) - 1} more" if len(files) > 1 else ""
    return DataError(
        "SOURCE_FILE_GONE",
        f"{files[0]}{others} was there when the epoch was planned and is gone: its rows would be missing",
        hint="put it back and run again; an empty file of the same name gives its rows up",
    )


def check_files(checkpoint: Checkpoint, epoch: int) -> None:
    """Refuse an epoch whose files are not all there: Spark would go on without the rows of the missing ones."""
    places = range(len((checkpoint.offsets(epoch) or "").splitlines()))
    found = [each for place in places for each in read_in(checkpoint, place, epoch)]
    missing = {path for each in found if is_local(each) and not os.path.exists(path := local_path(each))}
    if missing:
        raise gone(sorted(missing))


def _plain(url: str) -> str:
    return unquote("/" + url.removeprefix("file:").lstrip("/")) if url.startswith("file:") else url
