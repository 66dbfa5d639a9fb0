"""The query of the grid of cases, read from an address."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.report.datasette_plugin.looking import PER_PAGE
from edison_ci.results.case_grid import METRICS, SORTS, CaseQuery
from edison_ci.results.part_scores import PartName
from edison_ci.results.run_result import STATUSES

if TYPE_CHECKING:
    from edison_ci.report.datasette_plugin.looking import Args


def case_query(args: Args) -> CaseQuery:
    """Read the arguments of an address; an unknown value is as good as none."""
    kind, sign, name = args.text("part").partition(":")
    return CaseQuery(
        side=args.choice("side", ("head", "base")),
        metric=args.choice("metric", METRICS),
        sort=args.choice("sort", SORTS),
        tag=args.text("tag"),
        prompt=args.text("prompt"),
        model=args.text("model"),
        status=args.choice("status", ("", *STATUSES)),
        failed=args.flag("failed"),
        flagged=args.flag("flagged"),
        part=PartName(kind, name) if sign and name else None,
        text=args.text("q"),
        deep=args.flag("deep"),
        offset=(args.whole("page", 1) - 1) * PER_PAGE,
        limit=PER_PAGE,
    )
