"""One file for each box of the paper's figure, in reading order."""
