"""A project as a job without a terminal: one file for `spark-submit`, or `python -m anabranch.job`.

    spark-submit --master URL --jars ... job.py --project DIR [--follow]     `--print` prints the whole command
    python -m anabranch.job --project DIR --master URL [--follow]            starts its own JVM

It takes the options of `anabranch run` and ends with its exit codes. Started by `spark-submit`, it runs on the master
that was named there; without, on the one of `--master`, of the project's `configuration`, or on `local[*]`.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

_FOLDER = str(Path(__file__).resolve().parent)
if sys.path and str(Path(sys.path[0]).resolve()) == _FOLDER:
    sys.path.pop(0)  # of a file that is run: our modules would stand in for those of projects, such as `sources`


def main(argv: Sequence[str] | None = None) -> int:
    """Run the project, or print the command that does; the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        from anabranch.cli.main import main as command
    except ImportError as error:
        sys.stderr.write(
            f"{sys.executable} cannot run Anabranch: {error}\n"
            "hint: name a Python in which it is installed: spark-submit --conf spark.pyspark.python=/path/to/python\n"
        )
        return 2
    if "--print" not in arguments:
        return command(["run", *arguments])
    arguments.remove("--print")
    print(submit_command(arguments))  # noqa: T201 - this is what was asked for
    return 0


def submit_command(arguments: Sequence[str]) -> str:
    """The command that runs this file with these arguments, whose `--master` is for `spark-submit` itself.

    Only what must be known before the JVM starts is in it; all other settings are made when the session is opened.
    """
    from anabranch.engine.jars import jars
    from anabranch.engine.session import STACK

    rest, master = list(arguments), "local[*]"
    if "--master" in rest:
        at = rest.index("--master")
        master = rest[at + 1] if at + 1 < len(rest) else master
        del rest[at : at + 2]
    package = find_spec("pyspark")
    assert package is not None, "pyspark is installed with us"
    assert package.origin is not None, "and has an __init__"
    # The one in the package needs no environment; that beside Python looks for pyspark with the python3 on the PATH.
    submit = str(Path(package.origin).parent / "bin" / "spark-submit")
    options = {
        "--master": master,
        "--jars": ",".join(map(str, jars())),
        "--driver-java-options": STACK,
        "--conf": f"spark.pyspark.python={sys.executable}",
    }
    words = [submit, *(word for option in options.items() for word in option), __file__, *rest]
    return shlex.join(words)


if __name__ == "__main__":
    sys.exit(main())
