"""Tiles of a scene: where they lie, what fills their gaps, how they are blended."""
