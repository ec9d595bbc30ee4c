"""Polygons from a mask: components, outlines, seams between parts."""
