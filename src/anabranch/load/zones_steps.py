"""The transformers of a zone: each name looked up, its arguments checked, and the rules that come with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from anabranch.core.declarations import Action, Expectation, Unique
from anabranch.core.origin import BEFORE_CAST
from anabranch.core.where import Where
from anabranch.core.zones import Step
from anabranch.errors import ProjectError, did_you_mean
from anabranch.load.zones_layers import Layers
from anabranch.load.zones_transformers import (
    BUILT_IN,
    GIVEN,
    Registered,
    TransformerCall,
    argument_faults,
    known_arguments,
    plain_arguments,
)

Rules = list[Expectation | Unique]


def called_steps(
    layers: Layers, entity: str, zone: str, functions: Mapping[str, Registered], report: Callable[[ProjectError], None]
) -> tuple[list[Step], Rules]:
    """The steps of a zone and the rules they bring; faulty ones are reported and left out."""
    steps: list[Step] = []
    rules: Rules = []
    calls: list[TransformerCall] = layers.get("transformers", [])
    for place, call in enumerate(calls):
        where = _place(layers, place)
        own = functions.get(call.name)
        if own is None and call.name not in BUILT_IN:
            known = [*BUILT_IN, *functions]
            hint = did_you_mean(call.name, known) or f"transformers there are: {', '.join(known)}"
            text = f'entity "{entity}", zone "{zone}": there is no transformer "{call.name}"'
            report(ProjectError("TRANSFORMER_UNKNOWN", text, where=where, hint=hint))
            continue
        faults = argument_faults(call, own)
        for path, why in faults:
            said = f'{why} "{".".join(path)}"' if path else why
            text = f'entity "{entity}", zone "{zone}": {call.name}: {said}'
            taken = known_arguments(call, own)
            alike = did_you_mean(path[0], taken) if path and why.startswith("unknown") else None
            hint = alike or f"arguments: {', '.join(taken) or 'names to values'}"
            at = _place(layers, place, call.name, *path)
            report(ProjectError("TRANSFORMER_ARGUMENT", text, where=at, hint=hint))
        if not faults:
            steps += _steps(call, own, where, entity, zone)
            rules += [] if own else _rules(call, layers, place)
    return steps, rules


def _place(layers: Layers, place: int, *inside: str) -> Where:
    who = next(each for each in layers.said if each.says("transformers"))
    return who.where("transformers", place, *inside)


def _steps(call: TransformerCall, own: Registered | None, where: Where, entity: str, zone: str) -> list[Step]:
    if own is not None:
        given = {"entity": entity, "zone": zone}
        asked = {name: given[name] for name in GIVEN if name in (own.takes or ()) and name not in call.arguments}
        return [Step(call.name, own.function, call.arguments, own.where, asked)]
    if call.name == "validate":
        return []
    return [Step(call.name, BUILT_IN[call.name][0], plain_arguments(call), where)]


def _rules(call: TransformerCall, layers: Layers, place: int) -> Rules:
    """What `cast` and `validate` ask of the rows that a zone ends with; those that break it are put aside."""
    if call.name == "cast":
        return [
            Expectation(
                f"cast_{name}",
                f"`{name}` IS NOT NULL OR `{BEFORE_CAST}{name}` IS NULL",
                Action.QUARANTINE,
                _place(layers, place, call.name, name),
            )
            for name in call.arguments
        ]
    if call.name == "validate":
        return [
            Expectation(name, rule, Action.QUARANTINE, _place(layers, place, call.name, name))
            for name, rule in call.arguments.items()
        ]
    return []
