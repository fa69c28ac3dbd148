"""The `anabranch` command."""
