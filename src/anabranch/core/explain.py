"""A plan in words and as JSON records."""

from __future__ import annotations

from collections import Counter
from typing import Any

from anabranch.core.plan import ApplyOutput, ChannelPlan, Decide, Plan, Publish, RunFlow, StageOutput, Step


def as_records(plan: Plan) -> list[dict[str, Any]]:
    """One record per step, with the channel it belongs to."""
    return [
        {"channel": part.channel.name, "step": number, **_record(step)}
        for part in plan.channels
        for number, step in enumerate(part.steps, start=1)
    ]


def as_text(plan: Plan) -> str:
    """The plan as a person reads it."""
    if not plan.channels:
        return f'pipeline "{plan.pipeline}" writes nothing'
    return "\n\n".join(_channel_text(part) for part in plan.channels)


def _channel_text(part: ChannelPlan) -> str:
    outputs = len(part.outputs)
    head = f'channel "{part.channel.name}": {outputs} output{"s" if outputs != 1 else ""}, committed together'
    width = len(str(len(part.steps)))
    lines = [f"  {number:>{width}}. {_words(step)}" for number, step in enumerate(part.steps, start=1)]
    return "\n".join([head, *_scans(part), *lines])


def _scans(part: ChannelPlan) -> list[str]:
    counted = Counter(part.scans)
    return [f"  {source} is read {'once' if times == 1 else f'{times} times'}" for source, times in counted.items()]


def _words(step: Step) -> str:
    match step:
        case RunFlow(flow, (), how):
            return f"read     {flow.name}{_how(how)}  ({flow.where})"
        case RunFlow(flow, inputs, how):
            target = f" -> {flow.target}" if flow.target != flow.name else ""
            return f"flow     {flow.name}{target}  from {', '.join(inputs)}{_how(how)}  ({flow.where})"
        case StageOutput(dataset):
            by = f", partitioned by {', '.join(dataset.partition_by)}" if dataset.partition_by else ""
            return f"stage    {dataset.name}  ({dataset.format}{by})"
        case Decide():
            return "decide   one ledger transaction: from here on the epoch is kept, before it nothing is"
        case ApplyOutput(dataset):
            return f"apply    {dataset.name}"
        case Publish(_, outputs):
            return f"publish  the cut: {', '.join(outputs)}"


def _how(how: str | None) -> str:
    return f"  {how}" if how else ""


def _record(step: Step) -> dict[str, Any]:
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
                "where": str(dataset.where),
            }
        case Decide():
            return {"action": "decide"}
        case ApplyOutput(dataset):
            return {"action": "apply", "output": dataset.name}
        case Publish(_, outputs):
            return {"action": "publish", "outputs": list(outputs)}
