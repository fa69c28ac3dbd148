"""Settings on the command line, as `spark-submit` and `spark-pipelines` take them; they come before the project's."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.show_errors import UsageProblem

if TYPE_CHECKING:
    from anabranch.load.project import Project

Configuration = Annotated[
    list[str] | None, typer.Option("--conf", "-c", metavar="KEY=VALUE", help="A setting for this run. May be repeated.")
]
Master = Annotated[str | None, typer.Option("--master", metavar="URL", help="Where Spark runs, as spark.master.")]


def configured(project: Project, conf: Sequence[str] | None, master: str | None) -> Project:
    """The project with these settings."""
    settings = {"spark.master": master} if master else {}
    for text in conf or ():
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise UsageProblem("USAGE", f'"{text}" is no setting', hint="write --conf spark.sql.shuffle.partitions=8")
        settings[key.strip()] = value
    return dataclasses.replace(project, configuration={**project.configuration, **settings})
