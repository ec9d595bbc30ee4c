"""Rasters, grids, registration, tiles, vectors and writers. Never imports torch."""
