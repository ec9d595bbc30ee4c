"""How right a map is: a stratified random sample, judged by people, and what follows from it.

Olofsson et al. (2014), Good practices for estimating area and assessing accuracy of land change,
Remote Sensing of Environment 148, 42-57; for strata that are not the map's classes Stehman (2014),
International Journal of Remote Sensing 35, 4923-4939, of which the former is a special case.

- `design`: how many pixels to judge, and which: the strata of a map, and a draw from each.
- `sample`: the drawn pixels as a GeoPackage for QGIS, and back with verdicts.
- `estimate`: accuracies and areas with their intervals.
- `report`: one page, as HTML or PDF.
"""

from adadino.accuracy.design import Design, Stratum, sample_size
from adadino.accuracy.estimate import Assessment, Estimate, assess
from adadino.accuracy.sample import draw_sample, read_sample

__all__ = [
    "Assessment",
    "Design",
    "Estimate",
    "Stratum",
    "assess",
    "draw_sample",
    "read_sample",
    "sample_size",
]
