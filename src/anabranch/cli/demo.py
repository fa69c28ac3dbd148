"""`make demo`: the quickstart from nothing to three tables at one cut; run again, it takes in only what is new."""

from __future__ import annotations

import sys
from pathlib import Path

from anabranch.cli.init import SAMPLE_EVENTS, write_project
from anabranch.cli.main import main

FOLDER = Path("demo")
MORE_EVENTS = 1_000


def demo() -> int:
    """Run the demo; the exit code of the first step that failed, or 0."""
    if FOLDER.exists():
        _say(f"{MORE_EVENTS:,} more request events arrive in {FOLDER}/landing; only they are read")
        _more_events()
    else:
        _say(f"{SAMPLE_EVENTS:,} request events arrive in {FOLDER}/landing as JSON files")
        write_project(FOLDER, "quickstart")
    steps = [
        ("one pass over them feeds three tables; each epoch commits all three together or none", ["run", "--once"]),
        ("the epochs, and the version of every table at the published cut", ["status"]),
        (
            "all tables at that cut, in one query, without Spark",
            ["sql", "SELECT count(*) AS requests, (SELECT count(*) FROM error_events) AS errors, "
             "(SELECT count(*) FROM slow_requests) AS slow FROM request_logs"],
        ),
        ("and the rows", ["show", "error_events", "--limit", "5"]),
    ]  # fmt: skip
    for words, verb in steps:
        _say(words, [*verb[:1], *(f"'{part}'" if " " in part else part for part in verb[1:])])
        code = main(["--project", str(FOLDER), *verb])
        if code:
            return code
    _say("what to try next, in the folder demo/ with ../.venv/bin/anabranch:")
    sys.stdout.write(NEXT)
    return 0


NEXT = """
  anabranch plan                        the steps of an epoch
  anabranch run --follow                leave it running, and drop files into landing/
  kill -9 it, and run it again          every table is complete, equal, at one epoch
  anabranch show request_logs --at 0    the tables as they were an epoch ago
  anabranch explain LOCK_HELD           the long text of an error code

  demo/transformations/requests.py is the pipeline: forty lines.
"""


def _more_events() -> None:
    from anabranch.generate.events import write_request_events

    landing = FOLDER / "landing"
    known = sum(1 for path in landing.glob("*.json") for _ in path.open())
    write_request_events(landing, MORE_EVENTS, 1, start=known)


def _say(words: str, verb: list[str] | None = None) -> None:
    command = f"\n$ anabranch {' '.join(verb)}" if verb else ""
    sys.stdout.write(f"\n# {words}{command}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(demo())
