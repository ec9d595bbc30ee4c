"""Whole regions: many pairs, or mosaics of any size, cut into units that many workers predict.

`run` tells the story. `pairs` reads what is to be compared; `units` cuts it; `ledger` knows what
is finished; `worker` predicts a unit with what `scene` is made of; `pool` runs workers, in this
process or on Ray; `merge` ties the outputs together; `cost` says beforehand what it will take.
"""

from adadino.area.run import AreaResult, predict_area

__all__ = ["AreaResult", "predict_area"]
