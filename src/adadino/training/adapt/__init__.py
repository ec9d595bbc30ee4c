"""A trained model fitted to a few labelled tiles, and proof that it has become better.

`adadino.training.adapt.run.adapt` tells the story. What it calls, in order: `tiles` reads the pairs
and divides them into folds, `features` computes what stays frozen, once, `fit` trains the rest, and
`compare` decides between the old model and the new one.
"""
