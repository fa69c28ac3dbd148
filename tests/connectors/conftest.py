"""What is beside the tests of connectors and is no test itself."""

from __future__ import annotations

collect_ignore = ["sink_package_case.py"]  # copied beside the contract suite by test_sink_package
