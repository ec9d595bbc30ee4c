"""The parts of the synthetic world, in the order they work: plan, layout, view, render."""
