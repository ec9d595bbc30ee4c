"""Training: the Lightning task and what surrounds it."""
