"""How fast a model is and what it costs: timings, FLOPs, and whether a fast one still agrees."""
