"""One outside system each, behind the contract in `contract`."""
