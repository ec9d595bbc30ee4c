"""Pairs of images with change masks: from archives and folders to batches.

- `images`: one image or mask file to 8-bit pixels; what cannot be read exactly is refused.
- `folder`: a prepared split as a dataset, its fingerprint, and a warning where splits are equal.
- `augment`: the paper's augmentation of a batch, on its device.
- `prepare/`: a downloaded benchmark to verified tiles (`adadino prepare`).
- `synthetic/`: a procedural world with exact masks (`adadino synthesize`).
- `adapters`: datasets of torchgeo and Hugging Face as pairs, or as a folder.
- `staging`: how both get a set to its place, whole or not at all.

Data flows `prepare` or `synthetic` -> `folder` -> `augment` -> the training step. A number that
depends on data is printed with `folder.fingerprint` of it.
"""
