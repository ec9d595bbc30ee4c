"""Rasters without a model: reading, tiling, outlining and writing them. Never imports torch.

In reading order:

- `grid` says where pixels lie, and how the grids of two dates meet.
- `read` makes two files one pair: bands, mask, stretch, shift, windows of values from 0 to 1.
- `tile` cuts a scene into overlapping squares and blends their answers back into rows.
- `polygons` makes outlines with areas of the rows' mask, also where a scene was cut into parts.
- `write` makes files: GeoTIFF, GeoPackage and its kin, QGIS styles, a picture, a STAC item.

What flows: a `Grid` for each date and one for the result, windows (3, h, w) of both dates with one
valid mask, rows of probabilities, a mask of 0, 1 and 255, a table of polygons.
"""
