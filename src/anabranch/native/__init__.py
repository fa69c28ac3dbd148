"""The native pass: JSON parsed and projected in the workers by Arrow and DuckDB, never different from Spark."""
