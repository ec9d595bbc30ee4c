"""Polygons of what changed.

- `components` finds connected changes in bands of rows, and adds up their probabilities.
- `vector` outlines them and makes the table; `measure` says how large they are.
- `seams` joins the changes of a scene that was cut into parts.
- `parquet` writes them as GeoParquet.
"""
