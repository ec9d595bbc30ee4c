"""Files for people: COG, vector layers, QGIS styles, VRT, STAC, overview."""
