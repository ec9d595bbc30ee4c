"""Rasters in: bands, valid pixels, one grid, one stretch, the shift between the dates."""
