"""The names of the metrics, and what each tells."""

from __future__ import annotations

#: Gauges of a channel.
GAUGES = {
    "channel_up": ("anabranch_channel_up", "Whether a process works on the channel."),
    "generation": ("anabranch_generation", "The generation its epochs are counted in; a reset begins another."),
    "last_epoch": ("anabranch_last_epoch", "The newest published epoch of the generation."),
    "last_published": ("anabranch_last_published_timestamp_seconds", "When the newest epoch was published."),
    "open_epochs": ("anabranch_open_epochs", "Epochs that are decided and not published."),
    "input_rate": ("anabranch_input_rows_per_second", "Rows a second that came in, when it was last told."),
    "process_rate": ("anabranch_processed_rows_per_second", "Rows a second that were read, when it was last told."),
    "progress_at": ("anabranch_progress_timestamp_seconds", "When rates and lag were told."),
}

LAG = "What a source holds beyond what was read, in {unit}, when it was last told."

#: Counters by the figure they are made of, with their labels beside the pipeline.
COUNTERS = {
    "epochs_published": ("anabranch_epochs_published", ("channel",), "Epochs that readers can see."),
    "epochs_discarded": ("anabranch_epochs_discarded", ("channel",), "Epochs given up before they were decided."),
    "epochs_recovered": ("anabranch_epochs_recovered", ("channel",), "Epochs finished after a crash."),
    "epochs_restaged": ("anabranch_epochs_restaged", ("channel",), "Epochs staged again for a damaged file."),
    "rows_read": ("anabranch_rows_read", ("channel",), "Rows read from sources."),
    "rows_written": ("anabranch_rows_written", ("channel", "dataset"), "Rows of published epochs."),
    "bytes_written": ("anabranch_bytes_written", ("channel", "dataset"), "Bytes of the files of published epochs."),
    "rows_backfilled": ("anabranch_rows_backfilled", ("channel", "dataset"), "Rows of the past given to an output."),
    "rows_judged": ("anabranch_rows_judged", ("dataset",), "Rows that expectations looked at."),
    "rows_dropped": ("anabranch_rows_dropped", ("dataset",), "Rows that expectations left out."),
    "dead_letters": ("anabranch_dead_letters", ("dataset",), "Rows put aside into a quarantine table."),
    "rule_broken": ("anabranch_expectation_failed", ("dataset", "rule", "action"), "Rows that broke a rule."),
    "channel_retries": ("anabranch_channel_retries", ("channel", "code"), "Times a channel was started again."),
    "channel_failures": ("anabranch_channel_failures", ("channel", "code"), "Times a channel stopped with an error."),
    "runs_started": ("anabranch_runs_started", (), "Runs that began to work."),
    "runs_ended": ("anabranch_runs_ended", ("outcome",), "Runs that came to an end; one that dies tells none."),
    "events_dropped": ("anabranch_events_dropped", (), "Events that came too fast to be written down."),
    "not_sent": ("anabranch_not_sent", ("to",), "Lineage events and spans that could not be sent."),
}

#: Histograms by the figure they are made of.
HISTOGRAMS = {
    "step_seconds": ("anabranch_step_seconds", ("channel", "step"), "How long the steps of epochs took."),
    "window_seconds": (
        "anabranch_commit_window_seconds",
        ("channel",),
        "Between the first and the last sink's commit of an epoch: what plain readers may see torn.",
    ),
}

#: Figures that are counted from epochs.
OF_THE_LEDGER = frozenset(
    (
        *("epochs_published", "rows_written", "bytes_written", "rows_judged", "rows_dropped", "dead_letters"),
        *("rule_broken", "window_seconds", "window_seconds_sum"),
    )
)
