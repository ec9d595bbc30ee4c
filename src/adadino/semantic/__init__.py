"""What changed into what: the classes of both dates, learned, chosen and scored.

- `losses`: the term that teaches the classes, beside the binary objective.
- `choice`: from the probabilities of both dates to one class for each.
- `scores`: mIoU, SeK and F_scd, the field's scores of semantic change.

Labels travel as one tensor (B, 3, H, W) uint8: change (0 or 1), then the class of the first and of
the second date, from 1; 0 is a pixel whose class nobody labelled. Names are imported from the
modules, of which `choice` and `scores` are used without training.
"""
