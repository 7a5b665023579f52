"""Makes ``serving.csv``: tokens per step of a server that batches continuously, from a request trace.

    python data/traffic/make_serving.py AzureLLMInferenceTrace_conv.csv > serving.csv

The trace gives when each request arrived and how many tokens it read and wrote; this simulation gives
the steps. Every running request that has read its prompt adds one token to a step (decoding); what is
left of the budget goes to prompts in the order of arrival, a chunk each (prefill). Deterministic.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

HEADER = """\
# Tokens per step of continuous batching: simulated from a public request trace, not measured on a server.
# Source: Azure LLM inference trace 2023 (conversation), github.com/Azure/AzurePublicDataset, CC BY 4.0.
# Licence of this table: CC BY 4.0. How it was made: data/traffic/README.md.
extent,count
"""


@dataclass(frozen=True)
class Server:
    """Limits of a server, and how long its steps take (an assumption: it decides how requests overlap)."""

    step_tokens: int = 2048
    chunk_tokens: int = 512
    running: int = 64
    base_seconds: float = 20e-3
    token_seconds: float = 50e-6

    def seconds(self, tokens: int) -> float:
        return self.base_seconds + self.token_seconds * tokens


@dataclass
class Request:
    """When it arrives (seconds), prompt tokens still to read, and tokens still to write."""

    arrival: float
    prompt: int
    output: int


def read_trace(path: Path) -> list[Request]:
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    # The clock of the trace has seven digits below the second; datetime reads six.
    times = [datetime.fromisoformat(row["TIMESTAMP"][:26]) for row in rows]
    return [
        Request(
            (time - times[0]).total_seconds(), int(row["ContextTokens"]), max(1, int(row["GeneratedTokens"]))
        )
        for time, row in zip(times, rows, strict=True)
    ]


def simulate(requests: Iterable[Request], server: Server) -> Iterator[tuple[int, int]]:
    """Tokens of each step: decoded ones, and prompt tokens read."""
    waiting, running, now = deque(sorted(requests, key=lambda r: r.arrival)), list[Request](), 0.0
    while waiting or running:
        if not running:
            now = max(now, waiting[0].arrival)
        while waiting and waiting[0].arrival <= now and len(running) < server.running:
            running.append(waiting.popleft())
        decoded, read = _step(running, server)
        yield decoded, read
        running = [request for request in running if request.prompt or request.output]
        now += server.seconds(decoded + read)


def _step(running: list[Request], server: Server) -> tuple[int, int]:
    decoding = [request for request in running if not request.prompt]
    for request in decoding:
        request.output -= 1
    budget = server.step_tokens - len(decoding)
    read = 0
    for request in running:
        chunk = min(request.prompt, server.chunk_tokens, budget - read)
        if chunk:
            read += chunk
            request.prompt -= chunk
            # The step that ends a prompt writes the first token.
            request.output -= not request.prompt
    return len(decoding), read


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("trace", type=Path)
    for name, value in vars(Server()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    given = vars(parser.parse_args())
    requests = read_trace(given.pop("trace"))
    steps = list(simulate(requests, Server(**given)))
    counts = Counter(decoded + read for decoded, read in steps)
    sys.stdout.write(HEADER + "".join(f"{extent},{counts[extent]}\n" for extent in sorted(counts)))
    alone = sum(not read for _, read in steps)
    mean = sum(decoded + read for decoded, read in steps) / len(steps)
    facts = (
        f"{len(requests)} requests, {len(steps)} steps, {alone} of them decode only, mean {mean:.1f} tokens"
    )
    print(facts, file=sys.stderr)


if __name__ == "__main__":
    main()
