"""Reads the facts that stand beside figures of a GPU: driver, highest clocks, power limit."""

from __future__ import annotations

import subprocess

QUERY = {
    "GPU": "name",
    "NVIDIA driver": "driver_version",
    "highest SM clock": "clocks.max.sm",
    "highest memory clock": "clocks.max.memory",
    "power limit": "power.limit",
}
"""Our words for what ``nvidia-smi --help-query-gpu`` lists."""
SECONDS = 20.0
"""Seconds until ``nvidia-smi`` is given up."""


def machine_facts(command: str = "nvidia-smi") -> dict[str, str]:
    """Facts with their units about the first GPU; nothing where the driver's tool is missing."""
    asked = [command, f"--query-gpu={','.join(QUERY.values())}", "--format=csv,noheader", "--id=0"]
    try:
        found = subprocess.run(asked, capture_output=True, text=True, timeout=SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    values = [value.strip() for value in found.stdout.split(",")]
    return dict(zip(QUERY, values, strict=True)) if len(values) == len(QUERY) else {}
