"""A small backbone of one's own, distilled from a teacher on unlabelled images."""
