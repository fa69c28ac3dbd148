"""`anabranch gen`: synthetic data into the project's landing folder, another folder, or Kafka."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.output import Table
from anabranch.cli.show_errors import UsageProblem
from anabranch.cli.verb import Invocation
from anabranch.errors import ProjectError, SetupError, did_you_mean

if TYPE_CHECKING:
    from anabranch.generate.entities import Entity
    from anabranch.generate.faults import Faults
    from anabranch.generate.run import Made, Target, Wanted

ROWS = 100_000


def gen(
    at: Invocation,
    entities: Annotated[
        list[str], typer.Argument(metavar="ENTITY", help="What to make. Default: all of the shape.", show_default=False)
    ] = [],  # noqa: B006  typer copies it
    shape: Annotated[
        str, typer.Option(metavar="SHAPE", help="medallion: nine entities of shipping; requests: request events.")
    ] = "medallion",
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FOLDER", help="Where to. Default: landing/ of the project.")
    ] = None,
    kafka: Annotated[str, typer.Option(metavar="BOOTSTRAP", help="Write to topics of this broker instead.")] = "",
    topic_prefix: Annotated[str, typer.Option(metavar="TEXT", help="What the names of topics begin with.")] = "",
    rows: Annotated[
        int | None, typer.Option("--rows", metavar="N", help="How many events; the rest goes with them.")
    ] = None,
    start: Annotated[int, typer.Option(metavar="N", help="Number of the first event, to go on after others.")] = 0,
    files: Annotated[int | None, typer.Option("--files", metavar="N", help="How many files of events.")] = None,
    rate: Annotated[float | None, typer.Option("--rate", metavar="ROWS", help="So many events a second.")] = None,
    seconds: Annotated[
        float | None, typer.Option("--seconds", metavar="N", help="With --rate, for so long instead of --rows.")
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="The same seed gives the same data.")] = 7,
    faults: Annotated[
        str, typer.Option(metavar="FAULT=SHARE,...", help="late, duplicate, malformed, drift, skew, disorder.")
    ] = "",
) -> None:
    """Make synthetic data, the same for the same seed."""
    chosen = _chosen(shape, entities)
    wrong = parse_faults(faults)
    if kafka and out is not None:
        raise _usage("--kafka and --out exclude each other", "say one of them")
    if topic_prefix and not kafka:
        raise _usage("--topic-prefix is for --kafka", "add --kafka BOOTSTRAP, or leave it out")
    wanted = _wanted(chosen, wrong, rows=rows, start=start, files=files, rate=rate, seconds=seconds, seed=seed)
    target, where = _target(at, wanted, kafka, topic_prefix, out)
    made: dict[str, Made] = {}
    stopped = _make(wanted, target, made)
    _show(at, wanted, made, where, stopped)


def parse_faults(text: str) -> Faults:
    """What `--faults` asks for.

    >>> parse_faults("late=0.02, drift=0.1").asked()
    {'late': 0.02, 'drift': 0.1}
    """
    from dataclasses import fields

    from anabranch.generate.faults import EXCLUSIVE, Faults

    known = [f.name for f in fields(Faults)]
    shares: dict[str, float] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, _, said = (word.strip() for word in part.partition("="))
        if name not in known:
            hint = did_you_mean(name, known) or f"faults: {', '.join(known)}"
            raise UsageProblem("GEN_UNKNOWN_FAULT", f'there is no fault "{name}"', hint=hint)
        try:
            shares[name] = float(said)
        except ValueError:
            raise _usage(f'"{part}" has no share', f"for example {name}=0.01") from None
        if not 0 <= shares[name] <= 1:
            raise _usage(f"{name}={said} is no share of the rows", "a share is from 0 to 1, such as 0.01")
    found = Faults(**shares)
    if found.exclusive > 1 + 1e-9:
        raise _usage(f"{', '.join(EXCLUSIVE)} together are more than all rows", "a row has at most one of them")
    return found


def _usage(message: str, hint: str) -> UsageProblem:
    return UsageProblem("USAGE", message, hint=hint)


def _chosen(shape: str, names: list[str]) -> list[Entity]:
    from anabranch.generate.entities import SHAPES

    if shape not in SHAPES:
        raise _usage(f'there is no shape "{shape}"', did_you_mean(shape, SHAPES) or f"shapes: {', '.join(SHAPES)}")
    known = {e.name: e for e in SHAPES[shape]}
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known) or f"entities of {shape}: {', '.join(known)}"
            raise UsageProblem("GEN_UNKNOWN_ENTITY", f'there is no entity "{name}" in shape {shape}', hint=hint)
    return [e for e in SHAPES[shape] if not names or e.name in names]


def _wanted(
    entities: list[Entity],
    faults: Faults,
    *,
    rows: int | None,
    start: int,
    files: int | None,
    rate: float | None,
    seconds: float | None,
    seed: int,
) -> Wanted:
    from anabranch.generate.run import FILE_ROWS, MOST, MOST_FILES, Wanted

    if rate is not None and not 0 < rate < math.inf:
        raise _usage(f"--rate {rate} is no rate", "events a second, more than 0")
    if seconds is not None:
        if rate is None or rows is not None:
            raise _usage("--seconds goes with --rate, and not with --rows", "say --rate and --seconds, or --rows")
        if not 0 < seconds < math.inf:
            raise _usage(f"--seconds {seconds} is no time", "more than 0")
        rows = max(1, round(min(rate * seconds, MOST)))
    rows = ROWS if rows is None else rows
    if rows < 1 or start < 0 or start + rows > MOST:
        raise _usage(
            f"no events {start:,} to {start + rows:,}", f"--rows from 1, --start from 0, at most {MOST:,} in all"
        )
    if files is None:
        # With a rate, what one second brings is a file.
        files = math.ceil(rows / (max(1, round(rate)) if rate else FILE_ROWS))
    if not 1 <= files <= min(rows, MOST_FILES):
        raise _usage(
            f"{rows:,} events cannot be in {files:,} files",
            f"--files from 1 to the number of events, at most {MOST_FILES:,}",
        )
    return Wanted(entities, rows, start, seed, files, faults, rate)


def _target(at: Invocation, wanted: Wanted, kafka: str, prefix: str, out: Path | None) -> tuple[Target, str]:
    if kafka:
        from anabranch.generate.to_kafka import TopicTarget

        return TopicTarget(kafka, prefix, wanted.entities), kafka
    from anabranch.generate.to_files import FolderTarget

    if out is None:
        out = _landing(at)
    target = FolderTarget(out)
    target.refuse_doubles(wanted)
    return target, str(out)


def _landing(at: Invocation) -> Path:
    from anabranch.load.project import find_spec

    try:
        return find_spec(at.project).parent / "landing"
    except ProjectError as error:
        if error.code == "PROJECT_NOT_FOUND":
            error.hint = "--out FOLDER writes anywhere; `anabranch init` makes a project"
        raise


def _make(wanted: Wanted, target: Target, made: dict[str, Made]) -> bool:
    """Whether it was stopped before the end, which is how to end what goes at a rate."""
    from anabranch.errors import disk_failure
    from anabranch.generate.pace import Stopped, signals_stop
    from anabranch.generate.run import generate

    try:
        if wanted.rate is None:
            generate(wanted, target, made)
        else:
            with signals_stop() as pace:
                generate(wanted, target, made, pace.wait)
    except Stopped:
        return True
    except OSError as error:
        if disk_failure(error):
            raise
        raise SetupError(
            "GEN_CANNOT_WRITE", f"could not write: {error}", hint="choose a folder you may write to with --out"
        ) from error
    return False


def _show(at: Invocation, wanted: Wanted, made: dict[str, Made], where: str, stopped: bool) -> None:
    names = list(wanted.faults.asked())
    numbers = {n: {"rows": m.rows, "written": m.written, "files": m.files, "bytes": m.bytes} for n, m in made.items()}
    faults = {n: {fault: m.faults.get(fault, 0) for fault in names} for n, m in made.items()}
    at_broker = not any(m.files for m in made.values())
    hidden = {"files"} if at_broker else set()
    table = [{k: v for k, v in {"entity": n, **numbers[n], **faults[n]}.items() if k not in hidden} for n in made]
    record = {
        "where": where,
        "seed": wanted.seed,
        "start": wanted.start,
        "rows": wanted.rows,
        "stopped": stopped,
        "entities": [{"entity": n, **numbers[n], "faults": faults[n]} for n in made],
    }
    at.out.show(record, Table(table))
    more = wanted.start + wanted.rows
    events = max((m.rows for name, m in made.items() if name.endswith("_event")), default=0)
    if stopped:
        more = wanted.start + events
        at.out.note(f"stopped after {events:,} events")
    again = "" if at_broker else "the same command writes the same again, "
    at.out.note(f"written to {where}; {again}--start {more} goes on after it")
