"""Spark at work; the modules read in running order: session, flows, stage, commit, publish, recover, run."""
