"""A scene as overlapping squares.

- `tiles` plans where they lie, and mirrors the scene beyond its edges.
- `fill` puts something into holes that the model can look at.
- `blend` makes rows of the tiles' answers.
"""
