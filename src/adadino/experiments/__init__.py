"""The paper's tables as declarations, and the runner that fills them in (`adadino reproduce`).

- `table`: what a table is: rows, the recipe behind them, and what is measured.
- `tables`: the paper's tables with its published figures; `small`: ours on a small backbone.
- `setting`: what it is filled in with: data, weights, seeds, the place of its results.
- `runs`: a row's recipe, its data, and a folder named by what it learns.
- `runner`: trains what is missing, scores it, and keeps every result; an interrupted table goes on.
- `report`: a filled table as Markdown, CSV and a picture.

A new row is a line in `tables` or `small`. Two rows with equal recipes share one training run.
"""
