"""Fetching jars with the Ivy that ships inside pyspark: no Maven, no settings of its own, nothing kept."""

from __future__ import annotations

import errno
import importlib.util
import os
import re
import select
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from anabranch.engine.java import java
from anabranch.errors import SetupError

#: Ivy has no time limit of its own. It prints dots while bytes arrive: this long without one is a dead connection.
SILENCE_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Jar:
    """One line of the lock.

    >>> Jar("org.example", "thing", "1.2", 34, "ab56").file_name
    'thing-1.2.jar'
    """

    group: str
    artifact: str
    version: str
    size: int
    sha256: str

    @property
    def file_name(self) -> str:
        """The jar's name in the cache, as its publisher names it."""
        return f"{self.artifact}-{self.version}.jar"


def fetch(wanted: Sequence[Jar], folder: Path) -> None:
    """Put the `wanted` jars into `folder`; Ivy's own cache and settings live beside it and are the caller's to remove.

    Each jar is asked for by name, none brings in others. Whether the bytes are right is the caller's to check.
    """
    beside = folder.parent
    description = beside / "ivy.xml"
    description.write_text(_ivy_xml(wanted), "utf-8")
    command = [
        str(java().path),
        # Neither the user's Ivy folder, nor what is half-filled there, has a say.
        f"-Divy.default.ivy.user.dir={beside / 'ivy'}",
        *("-cp", str(_ivy_jar()), "org.apache.ivy.Main", "-warn"),
        *("-cache", str(beside / "ivy-cache"), "-ivy", str(description)),
        *("-types", "jar", "bundle", "-retrieve", f"{folder}/[artifact]-[revision].[ext]"),
    ]
    exit_code, output = _run(command)
    if exit_code == 0:
        return
    if "No space left on device" in output:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(beside))
    named = {f"{name}-{version}.jar" for name, version in re.findall(r"::\s+[^#\s]+#([^;\s]+);([^!:\s]+)", output)}
    files = [jar.file_name for jar in wanted if not named or jar.file_name in named]
    reason = (
        f"no answer for {SILENCE_SECONDS:.0f} s" if exit_code is None else "no network, or the server does not have it"
    )
    raise download_failed(files, reason, output)


def download_failed(files: Sequence[str], reason: str, output: str = "") -> SetupError:
    """The error for jars that did not come."""
    last = [line.strip() for line in output.splitlines() if line.strip(". \t")][-40:]
    shown = ", ".join(files[:3]) + (f" and {len(files) - 3} more" if len(files) > 3 else "")
    return SetupError(
        "JARS_DOWNLOAD_FAILED",
        f"could not fetch {shown}: {reason}",
        hint="check the network and run again; behind a proxy set "
        "JAVA_TOOL_OPTIONS='-Dhttps.proxyHost=... -Dhttps.proxyPort=...'; "
        "without a network copy the cache folder (see `anabranch doctor`) from a machine that has it",
        retryable=True,
        details={"files": list(files), "output": last},
    )


def _run(command: Sequence[str]) -> tuple[int | None, str]:
    """The exit code (None if it fell silent and was killed) and everything printed."""
    printed = bytearray()
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        assert process.stdout is not None
        try:
            while select.select([process.stdout], [], [], SILENCE_SECONDS)[0]:
                some = os.read(process.stdout.fileno(), 65536)
                if not some:
                    return process.wait(), printed.decode(errors="replace")
                printed += some
            return None, printed.decode(errors="replace")
        finally:
            process.kill()


def _ivy_xml(wanted: Sequence[Jar]) -> str:
    lines = "\n".join(
        f"  <dependency org={quoteattr(jar.group)} name={quoteattr(jar.artifact)} rev={quoteattr(jar.version)}"
        ' conf="default->master"/>'
        for jar in wanted
    )
    return f"""<ivy-module version="2.0">
 <info organisation="anabranch" module="jars"/>
 <configurations><conf name="default"/></configurations>
 <dependencies>
{lines}
 </dependencies>
</ivy-module>
"""


def _ivy_jar() -> Path:
    pyspark = importlib.util.find_spec("pyspark")  # found, not imported: that would take a while
    folders = list(pyspark.submodule_search_locations or []) if pyspark else []
    found = [jar for folder in folders for jar in sorted(Path(folder, "jars").glob("ivy-*.jar"))]
    if not found:
        raise SetupError(
            "PYSPARK_INCOMPLETE",
            "the installed pyspark has no Ivy among its jars",
            hint="install the full package again: `pip install --force-reinstall pyspark`",
        )
    return found[-1]
