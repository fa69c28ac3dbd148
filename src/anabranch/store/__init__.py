"""What must survive: the ledger of epochs."""
