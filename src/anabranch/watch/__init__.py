"""What reads events, ledger and history from outside a run."""
