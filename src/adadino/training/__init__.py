"""Training: one run from its configuration to its folder (`adadino train`).

Read it in this order:

- `config`: all settings of a run; the defaults are the paper's.
- `run`: opens data and folder, builds the model, runs Lightning, writes the card.
- `start`: the model a run begins with, new or trained.
- `data`: the splits, and batches whose order follows from the seed and the epoch alone.
- `task`: one training step, validation, the optimiser, and what a checkpoint holds.
- `schedule`: the learning rate, the budget k and CGLA's lambda over a run.
- `step`: how a step runs: precision, compiling, CUDA graphs, several devices.
- `folder`, `callbacks`: a run's folder: whose it is, where to go on, what is written when.
- `study`: several runs for one question: folds, or F1 against the number of labels.
- `pretrain/`: a small backbone of one's own (`adadino pretrain`).

**What resumes, and how.** The same command goes on from `last.ckpt`, which is written last in every
validated epoch. Whatever is random follows from (seed, epoch, step, rank), never from a generator's
state, so a resumed run ends in the same bits as an uninterrupted one.
"""
