"""Image pairs: folders, preparation of the benchmarks, augmentation, the synthetic world."""
