"""The public benchmarks, from their archives to verified folders of tiles."""
