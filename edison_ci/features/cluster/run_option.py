"""The option --on: workers that make the calls of a run, here or at a scheduler."""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import TYPE_CHECKING

from edison_ci.errors import UsageError
from edison_ci.features.cluster import dask_executor, local_workers
from edison_ci.features.cluster import tls as cluster_tls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from edison_ci.config.models import Model
    from edison_ci.execute.run_options import ConnectWorkers
    from edison_ci.features.cluster.tls import Certificates

_LOCAL = re.compile(r"local:([0-9]{1,4})")
_PROCESS = "edison_ci.features.cluster.worker_process"


@contextlib.contextmanager
def workers_at(on: str, tls: Path | None, root: Path, *, offline: bool) -> Iterator[ConnectWorkers]:
    """Yield what connects runs to workers; those of `local:N` end with the block."""
    if "://" not in on and not on.startswith("local:"):
        raise UsageError(
            f"{on!r} is neither local:N nor the address of a scheduler",
            hint="write --on local:4, or --on tls://HOST:PORT",
        )
    if not on.startswith("local:"):
        address = cluster_tls.read_address(on)
        certificates = cluster_tls.certificates_for(address, tls)
        asyncio.run(cluster_tls.probe(address, certificates))
        yield _connector(str(address), certificates, 0)
        return
    found = _LOCAL.fullmatch(on)
    count = 0 if found is None else int(found[1])
    if not 1 <= count <= local_workers.MOST_WORKERS:
        raise UsageError(
            f"{on!r} is not local:N with 1 to {local_workers.MOST_WORKERS} workers",
            hint="write --on local:4",
        )
    options = ["offline"] if offline else []
    with local_workers.local_cluster(count, _PROCESS, *options, cwd=root) as cluster:
        yield _connector(cluster.scheduler, cluster.certificates, count)


def _connector(scheduler: str, certificates: Certificates | None, at_least: int) -> ConnectWorkers:
    security = None if certificates is None else certificates.security()

    async def connect(
        run_id: str,
        models: Sequence[Model],
        programs: Mapping[str, str],
        tell: Callable[[str], None],
    ) -> dask_executor.DaskExecutor:
        executor = dask_executor.DaskExecutor(scheduler, security, run_id, models, tell)
        await executor.open(at_least, programs)
        return executor

    return connect
