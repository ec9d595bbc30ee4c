"""Jobs: their records, their queue, and the process that computes them."""
