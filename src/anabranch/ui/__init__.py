"""The web page of a project: it reads the ledger, the history and the tables, and writes nothing."""
