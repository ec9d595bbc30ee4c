"""Files for analysts, each whole or not there.

- `cog` takes rows and makes a cloud-optimised GeoTIFF, or a PNG; `vrt` ties many rasters together.
- `layers` writes polygons: GeoPackage, GeoJSON, FlatGeobuf, Shapefile.
- `qml` styles rasters and layers for QGIS; `overview` draws a picture; `stac` describes it all.
"""
