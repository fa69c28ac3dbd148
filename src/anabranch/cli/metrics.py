"""`anabranch metrics`."""

from __future__ import annotations

from anabranch.cli.verb import Invocation


def metrics(at: Invocation) -> None:
    """Print metrics of the pipeline in Prometheus' text format, while it runs and when it does not. Without Java."""
    from anabranch.load.project import read_project
    from anabranch.watch.metrics import Meter

    meter = Meter(read_project(at.project))
    try:
        text = meter.text()[0].decode()
        at.out.show({"metrics": _records(text)} if at.json else None, text.rstrip("\n"))
    finally:
        meter.close()


def _records(text: str) -> list[dict[str, object]]:
    from prometheus_client.parser import text_string_to_metric_families

    return [
        {"name": sample.name, "labels": sample.labels, "value": sample.value}
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]
