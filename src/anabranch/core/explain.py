"""A plan in words and as JSON records."""

from __future__ import annotations

from collections import Counter
from typing import Any

from anabranch.core.changes import Changes, Expression
from anabranch.core.declarations import Dataset, Expectation, Flow, Unique
from anabranch.core.formats import formats
from anabranch.core.plan import ApplyOutput, ChannelPlan, Decide, Plan, Publish, RunFlow, StageOutput, Step


def as_records(plan: Plan) -> list[dict[str, Any]]:
    """One record per step, with the channel it belongs to; before them those of what is worth knowing of a channel."""
    return [record for part in (*plan.channels, *plan.views) for record in _records(part)]


def _records(part: ChannelPlan) -> list[dict[str, Any]]:
    notes = [{"channel": part.channel.name, "action": "note", "text": note} for note in part.notes]
    steps = [
        {"channel": part.channel.name, "step": number, **_record(step, part)}
        for number, step in enumerate(part.steps, start=1)
    ]
    return [*notes, *steps]


def as_text(plan: Plan) -> str:
    """The plan as a person reads it."""
    if not plan.channels and not plan.views:
        return f'pipeline "{plan.pipeline}" writes nothing'
    return "\n\n".join([*map(_channel_text, plan.channels), *map(_view_text, plan.views)])


def _view_text(part: ChannelPlan) -> str:
    (flow,) = part.flows
    inputs = ", ".join(flow.inputs) or "nothing of this pipeline"
    head = f'view "{part.channel.name}": computed from the cut when what it reads has changed'
    how = f"\n  {flow.how}" if flow.how else ""
    details = "".join(f"\n  {text}" for dataset in part.outputs for text in _details(part, dataset))
    return f"{head}\n  from {inputs}  ({flow.flow.where}){how}{details}"


def _channel_text(part: ChannelPlan) -> str:
    outputs = len(part.outputs)
    head = f'channel "{part.channel.name}": {outputs} output{"s" if outputs != 1 else ""}, committed together'
    head += "" if part.channel.trigger is None else f", every {part.channel.trigger:g} seconds"
    head += "" if not part.channel.turn else ", detached: reads tables as they come"
    width = len(str(len(part.steps)))
    lines: list[str] = []
    for number, step in enumerate(part.steps, start=1):
        lines.append(f"  {number:>{width}}. {_words(step)}")
        if isinstance(step, StageOutput):
            lines += [f"{' ' * (width + 13)}{text}" for text in _details(part, step.dataset)]
    notes = [f"  note: {note}" for note in part.notes]
    return "\n".join([head, *_scans(part), *notes, *lines])


def _details(part: ChannelPlan, dataset: Dataset) -> list[str]:
    """What is to be said of an output below its line."""
    said = [_by_key(changes)] if (changes := _changes(part, dataset)) else []
    said += [_answers(dataset)] if dataset.owner or dataset.tags else []
    said += ["every row says where it came from"] if dataset.origin else []
    said.append(_promise(dataset))
    said += [f"not promised: {text}" for text in _not_promised(dataset)]
    rules: list[Expectation | Unique] = [*dataset.expectations, *dataset.unique]
    if rules:
        named = ", ".join(f"{rule.action} {rule.name}" for rule in rules)
        said.append(f"{len(rules)} rule{'s' if len(rules) != 1 else ''}: {named}")
    return said


def _answers(dataset: Dataset) -> str:
    """Who answers for an output, and its tags."""
    owner = [f"owner: {dataset.owner}"] if dataset.owner else []
    return ", ".join([*owner, *(f"{name}: {value}" for name, value in dataset.tags.items())])


def _promise(dataset: Dataset) -> str:
    """What holds for an output whatever crashes, and what that rests on."""
    can = formats()[dataset.format].capabilities
    read = "; read at the cut" if can.pinned_reads else ""
    return f"{'exactly' if can.exactly_once else 'at least'} once, by {can.idempotent_by}{read}"


def _not_promised(dataset: Dataset) -> tuple[str, ...]:
    """What holds for other outputs and not for this one."""
    return formats()[dataset.format].capabilities.exceptions


def _by_key(changes: Changes) -> str:
    text = f"{'snapshots' if changes.snapshot else 'changes'} by {', '.join(map(_expression, changes.keys))}"
    text += "" if changes.sequence_by is None else f", newest by {_expression(changes.sequence_by)}"
    text += "" if changes.deletes is None else f", deleted when {_expression(changes.deletes)}"
    return text + (", keeps history" if changes.keeps_history else "")


def _changes(part: ChannelPlan, dataset: Dataset) -> Changes | None:
    found = (f.flow.changes for f in part.flows if f.flow.target == dataset.name)
    return next((changes for changes in found if changes), None)


def _expression(said: Expression) -> str:
    """What a user wrote; a Spark Column as its SQL.

    >>> _expression("at")
    'at'
    """
    return str(said).removeprefix("Column<'").removesuffix("'>")


def _scans(part: ChannelPlan) -> list[str]:
    counted = Counter(part.scans)
    return [f"  {source} is read {'once' if times == 1 else f'{times} times'}" for source, times in counted.items()]


def _words(step: Step) -> str:
    match step:
        case RunFlow(flow, (), how):
            return f"read     {flow.name}{_how(how)}{_mode(flow)}  ({flow.where})"
        case RunFlow(flow, inputs, how):
            target = f" -> {flow.target}" if flow.target != flow.name else ""
            return f"flow     {flow.name}{target}  from {', '.join(inputs)}{_how(how)}{_mode(flow)}  ({flow.where})"
        case StageOutput(dataset):
            by = f", partitioned by {', '.join(dataset.partition_by)}" if dataset.partition_by else ""
            return f"stage    {dataset.name}  ({dataset.format}{by})"
        case Decide():
            return "decide   one ledger transaction: from here on the epoch is kept, before it nothing is"
        case ApplyOutput(dataset):
            return f"apply    {dataset.name}"
        case Publish(_, outputs):
            return f"publish  the cut: {', '.join(outputs)}"


def _mode(flow: Flow) -> str:
    return "  rows again whenever they change" if flow.mode == "update" else ""


def _how(how: str | None) -> str:
    return f"  {how}" if how else ""


def _record(step: Step, part: ChannelPlan) -> dict[str, Any]:
    match step:
        case RunFlow(flow, inputs, how):
            return {
                "action": "flow" if inputs else "read",
                "flow": flow.name,
                "target": flow.target,
                "inputs": list(inputs),
                "how": how,
                "where": str(flow.where),
            }
        case StageOutput(dataset):
            return {
                "action": "stage",
                "output": dataset.name,
                "format": dataset.format,
                "partition_by": list(dataset.partition_by),
                "rules": [*map(_expectation_record, dataset.expectations), *map(_unique_record, dataset.unique)],
                "changes": _changes_record(_changes(part, dataset)),
                "promise": _promise(dataset),
                "not_promised": list(_not_promised(dataset)),
                "owner": dataset.owner,
                "tags": dict(dataset.tags),
                "origin": dataset.origin,
                "where": str(dataset.where),
            }
        case Decide():
            return {"action": "decide"}
        case ApplyOutput(dataset):
            return {"action": "apply", "output": dataset.name}
        case Publish(_, outputs):
            return {"action": "publish", "outputs": list(outputs)}


def _expectation_record(rule: Expectation) -> dict[str, Any]:
    return {"name": rule.name, "action": str(rule.action), "condition": rule.condition}


def _unique_record(rule: Unique) -> dict[str, Any]:
    return {"name": rule.name, "action": str(rule.action), "unique": list(rule.columns)}


def _changes_record(changes: Changes | None) -> dict[str, Any] | None:
    if changes is None:
        return None
    said = {"sequence_by": changes.sequence_by, "deletes": changes.deletes}
    return {
        "keys": [_expression(key) for key in changes.keys],
        **{name: None if value is None else _expression(value) for name, value in said.items()},
        "history": changes.keeps_history,
        "snapshot": changes.snapshot,
    }
