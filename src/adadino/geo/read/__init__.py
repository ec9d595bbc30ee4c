"""Two files as one pair.

- `source` opens one image and reads windows of it, straight or warped; `bands` chooses its colours.
- `raster` opens both on one grid, with one valid mask and one stretch (`stretch` fits that);
  `reader` reads windows of the open pair.
- `interest` is the wanted part, `clouds` what is hidden, `dates` when the images were taken.
- `register` estimates how far the second date lies off the first.
- `small` reads both in few pixels, for pictures.
"""
