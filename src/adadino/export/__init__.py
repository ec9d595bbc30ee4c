"""Write a model as one file for other programs, ONNX or `.pt2`, checked against the model.

`write.py` has `export`, step by step. `portable.py` makes the model a graph that takes any image
size, `freeze.py` cuts the FFNs down to chosen chunks, `trace.py` traces and converts, `check.py`
compares, and `metadata.py` is what the file says about itself.
"""

from adadino.export.write import Exported, ExportOptions, export

__all__ = ["ExportOptions", "Exported", "export"]
