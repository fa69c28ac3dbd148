"""Finding the Java that will run Spark."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from anabranch.errors import SetupError

#: What Spark 4.1 is released for.
SUPPORTED = (17, 21)

_INSTALL = (
    "install Java 17: `apt install openjdk-17-jre-headless` (Debian, Ubuntu), "
    "`dnf install java-17-openjdk-headless` (Fedora), `brew install openjdk@17` (macOS); "
    "if it is there already, set JAVA_HOME to its folder"
)


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that Spark can use."""

    path: Path
    version: str

    @property
    def major(self) -> int:
        """The number releases are known by.

        >>> Java(Path("/usr/bin/java"), "17.0.15").major
        17
        """
        return _major(self.version)


def java() -> Java:
    """The Java that Spark's own scripts will choose: the one of JAVA_HOME, else the first on PATH."""
    path = _find()
    answer = subprocess.run([path, "-version"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    found = re.search(r'version "([^"]+)"', answer.stderr + answer.stdout)
    if answer.returncode != 0 or not found:
        said = (answer.stderr + answer.stdout).strip().splitlines()
        raise SetupError(
            "JAVA_MISSING",
            f"{path} does not start: {said[0] if said else f'exit code {answer.returncode}'}",
            hint=_INSTALL,
        )
    version = found.group(1)
    if _major(version) not in SUPPORTED:
        wanted = " or ".join(map(str, SUPPORTED))
        raise SetupError("JAVA_VERSION", f"{path} is Java {version}, Spark needs {wanted}", hint=_INSTALL)
    return Java(path, version)


def _find() -> Path:
    home = os.environ.get("JAVA_HOME")
    if home:
        path = Path(home, "bin", "java")
        if not os.access(path, os.X_OK):
            raise SetupError(
                "JAVA_MISSING", f"JAVA_HOME is {home}, but there is no {path}", hint=f"unset JAVA_HOME, or {_INSTALL}"
            )
        return path
    on_path = shutil.which("java")
    if on_path is None:
        raise SetupError("JAVA_MISSING", "no Java: JAVA_HOME is not set and no `java` is on PATH", hint=_INSTALL)
    return Path(on_path)


def _major(version: str) -> int:
    """Until Java 8 the number came second.

    >>> _major("17.0.15"), _major("1.8.0_402"), _major("21-ea")
    (17, 8, 21)
    """
    first, *rest = (int(n) for n in re.findall(r"\d+", version))
    return rest[0] if first == 1 and rest else first
