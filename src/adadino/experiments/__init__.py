"""The paper's tables as declarations, and the runner that fills them in."""
