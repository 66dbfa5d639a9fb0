"""What do the same calls cost a loop that does nothing else?

    python -m benchmarks.bare PORT CALLS CONNECTIONS

Nothing is rendered, checked or stored. Calls begin spread over the latency, as those of a run soon
are: answers that come one by one cost more than answers that come together.
"""

from __future__ import annotations

import asyncio
import json
import sys

import aiohttp

LATENCY_S = 0.1


async def bare(port: int, calls: int, connections: int) -> int:
    """Make the calls and return how many were answered."""
    address, left, answered = f"http://127.0.0.1:{port}/v1/chat/completions", iter(range(calls)), 0
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=connections)) as session:

        async def work(place: int) -> None:
            nonlocal answered
            await asyncio.sleep(place * LATENCY_S / connections)
            for number in left:
                asked = {"model": "mock", "messages": [{"role": "user", "content": f"{number}"}]}
                async with session.post(address, json=asked) as reply:
                    answered += bool(json.loads(await reply.read())["choices"])

        await asyncio.gather(*(work(place) for place in range(connections)))
    return answered


if __name__ == "__main__":
    port, calls, connections = map(int, sys.argv[1:])
    if asyncio.run(bare(port, calls, connections)) != calls:
        raise SystemExit("not every call was answered")
