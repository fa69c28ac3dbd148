"""Synthetic data, the same for the same seed."""
