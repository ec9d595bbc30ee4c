"""A small backbone of one's own, distilled from a teacher on unlabelled images.

- `config`, `run`: the settings and the loop (`adadino pretrain`).
- `views`: tiles of an archive, and views cut from them.
- `distill`: the student, the teacher's targets and the loss.
- `probe`: how much change frozen features show, in seconds.
"""
