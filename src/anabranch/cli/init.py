"""`anabranch init NAME`: a project to start from."""

from __future__ import annotations

import re
from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated

import typer

from anabranch.cli.output import Table
from anabranch.cli.show_errors import UsageProblem
from anabranch.cli.verb import Invocation
from anabranch.errors import ProjectError, SetupError, did_you_mean

#: The folders of `templates/`, with what each is for.
TEMPLATES = {
    "quickstart": "JSON files in a folder feed three tables; runs in a minute, needs no services",
    "medallion": "nine entities of shipping through bronze, silver and gold, in YAML; `anabranch gen` makes the data",
    "dp": "the same as an unmodified Spark Declarative Pipelines project, which spark-pipelines runs too",
}
#: Templates whose data `anabranch gen` makes, as much as is wanted.
WITHOUT_SAMPLES = ("medallion",)
SAMPLE_EVENTS, SAMPLE_FILES = 3_000, 3
NEXT = """
next:
  cd {folder}
  anabranch check                # is the project in order? needs no Java
  anabranch run --once           # take in everything that has arrived
  anabranch show request_logs    # the rows at the published cut"""
NEXT_MEDALLION = """
next:
  cd {folder}
  anabranch gen                  # synthetic data into landing/
  anabranch run --once           # take in everything that has arrived
  anabranch show gold.shipment_status"""


def init(
    at: Invocation,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Folder to make; its last part names the project.", show_default=False)
    ] = "",
    template: Annotated[
        str, typer.Option(metavar="TEMPLATE", help="What to start from.", autocompletion=lambda: list(TEMPLATES))
    ] = "quickstart",
    name_option: Annotated[str, typer.Option("--name", metavar="NAME", help="The same as NAME.")] = "",
    list_templates: Annotated[bool, typer.Option("--list", help="List the templates.")] = False,
) -> None:
    """Make a new project from a template, most with sample data in them."""
    if list_templates:
        rows = [{"template": key, "what": what} for key, what in TEMPLATES.items()]
        at.out.show(rows, Table(rows))
        return
    if not (name or name_option) or (name and name_option):
        raise UsageProblem("USAGE", "init needs one name", hint="for example `anabranch init quickstart`")
    folder = Path(name or name_option)
    _refuse_bad_name(folder)
    if template not in TEMPLATES:
        hint = did_you_mean(template, TEMPLATES) or f"templates: {', '.join(TEMPLATES)}"
        raise UsageProblem("UNKNOWN_TEMPLATE", f'there is no template "{template}"', hint=hint)
    _refuse_occupied(folder)
    try:
        written = write_project(folder, template)
    except OSError as error:
        raise SetupError(
            "INIT_CANNOT_WRITE",
            f"could not write the project: {error}",
            hint="choose a folder you may write to, with room left; remove what was begun",
        ) from error
    record = {"project": folder.resolve().name, "folder": str(folder.resolve()), "template": template}
    made, then = f"made {folder} from template {template}: {len(written)} files", NEXT_MEDALLION
    if template not in WITHOUT_SAMPLES:
        made, then = f"{made}, {SAMPLE_EVENTS:,} sample events in landing/", NEXT
    at.out.show(
        {**record, "files": [str(path.relative_to(folder)) for path in written]}, made, then.format(folder=folder)
    )


def write_project(folder: Path, template: str) -> list[Path]:
    """Copy a template's files into `folder`, put the project's name in, add sample events; returns what it wrote."""
    from anabranch.generate.events import write_request_events

    root = folder.resolve()
    words = {"{{ name }}": root.name, "{{ folder_url }}": root.as_uri()}
    written = []
    with as_file(files("anabranch.cli").joinpath("templates", template)) as source:
        for path in sorted(p for p in source.rglob("*") if p.is_file() and "__pycache__" not in p.parts):
            text = path.read_text(encoding="utf-8")
            for word, value in words.items():
                text = text.replace(word, value)
            target = folder / path.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
            written.append(target)
    if template in WITHOUT_SAMPLES:
        return written
    return [*written, *write_request_events(folder / "landing", SAMPLE_EVENTS, SAMPLE_FILES)]


def _refuse_bad_name(folder: Path) -> None:
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", folder.resolve().name):
        raise UsageProblem(
            "BAD_PROJECT_NAME",
            f'"{folder.resolve().name}" cannot name a project',
            hint="a name starts with a letter and has letters, digits, _ and - only",
        )


def _refuse_occupied(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ProjectError(
            "INIT_FOLDER_NOT_EMPTY",
            f"{folder} exists already and is not an empty folder",
            hint="choose another name, or empty it first",
        )
