"""The public benchmarks, from their archives to verified folders of tiles.

Read it in the order in which `run.prepare` calls it:

- `archives`: a folder, a zip, or zips in either, as one list of files.
- `layouts`: which three files are a scene, and which split it belongs to.
- `cutting`: which tiles a scene gives, and the cutting itself.
- `benchmarks`, `splits`: what each benchmark must count, and splits that a source lacks.
- `manifest`: what was made, with fingerprints; written last.
"""
