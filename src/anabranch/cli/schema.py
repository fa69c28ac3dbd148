"""`anabranch schema`: the keys of project files, for editors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from anabranch.cli.verb import Invocation

DRAFT = "https://json-schema.org/draft/2020-12/schema"


def schema(
    at: Invocation,
    included: Annotated[bool, typer.Option("--included", help="Of the files that anabranch.yml includes.")] = False,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write it to a file.")] = None,
) -> None:
    """Print the JSON Schema of anabranch.yml, with which editors check and complete it."""
    found = json_schema(included=included)
    text = json.dumps(found, indent=2)
    if out is None:
        at.out.show(found, text)
        return
    out.write_text(text + "\n", encoding="utf-8")
    at.out.show({"written": str(out)}, f"written to {out}")
    at.out.note(f"editors find it by a first line: # yaml-language-server: $schema={out}")


def json_schema(*, included: bool = False) -> dict[str, Any]:
    """The JSON Schema of a project file, or of one that it includes. A value may stand for anything."""
    from anabranch.load.project import AnabranchSpec
    from anabranch.load.zones_models import IncludedSpec

    model, title = (IncludedSpec, "included") if included else (AnabranchSpec, "anabranch.yml")
    found = model.model_json_schema(by_alias=True)
    return {"$schema": DRAFT, **_with_values(found), "title": title}


def _with_values(node: Any) -> Any:
    """The schema, in which `${name}` is as good as a number or a truth value."""
    if isinstance(node, list):
        return [_with_values(each) for each in node]
    if not isinstance(node, dict):
        return node
    found = {key: _with_values(value) for key, value in node.items()}
    kinds = found.get("type")
    if isinstance(kinds, str) and kinds in ("integer", "number", "boolean") and "const" not in found:
        limits = {key: value for key, value in found.items() if key not in ("description", "default", "title")}
        rest = {key: value for key, value in found.items() if key in ("description", "default", "title")}
        return {**rest, "anyOf": [limits, {"type": "string", "pattern": r"\$\{[A-Za-z_]\w*\}"}]}
    return found
