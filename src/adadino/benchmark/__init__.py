"""How fast a model is, what it costs, and whether a faster form still draws the same map.

`run.py` measures by the protocol of the paper's Table 3; `adadino benchmark` is its command.
`options.py` holds its settings.
`modes.py` are the forms of the model that it compares, and transformers' encoder beside them.
`report.py` is what was found, as a table, a file and a plot. `cost.py` counts GFLOPs as the paper
does, and times. `agreement.py` compares the maps of two forms on labelled pairs.
"""
