"""What the page shows of a job: layout, tiles, polygons at a threshold."""
