"""What people read of a run or a model: tables, pictures and cards.

- `tables`: Markdown and CSV from a header and rows.
- `pictures`: matplotlib figures, error maps, sheets of images.
- `document`: sections of text, tables and pictures as one HTML page or a PDF.
- `card`: the card of a training run, and the README of a model on the hub.

It is given what it shows and computes no figure of its own. Training, evaluation, experiments and
benchmarks import it; it imports none of them.
"""
