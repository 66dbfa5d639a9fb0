"""Charts of pages as markup, drawn once for the same data.

A chart is drawn in three widths, with a table of its data; that takes longer than the rest of a
page. Its record has all that it shows, so it is the key.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from edison_ci.report.charts.drawing import fluid
from edison_ci.report.components import figure

if TYPE_CHECKING:
    from collections.abc import Callable

    from markupsafe import Markup

    from edison_ci.report.charts.drawing import Drawing

_MOST = 256


@lru_cache(maxsize=_MOST)
def fluid_figure(draw: Callable[[Any], Drawing], chart: Any) -> Markup:
    """Return a chart that fills its panel, with its title and data."""
    return figure(fluid(draw, chart))
