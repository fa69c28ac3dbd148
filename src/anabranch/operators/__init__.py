"""Pure functions from DataFrame to DataFrame."""
