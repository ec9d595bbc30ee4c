"""Models that travel: one file, ONNX or `.pt2`, checked against the model it came from.

`write` tells the story; `portable` are the model's parts without a branch on the image's size;
`freeze` cuts the FFNs down to chosen chunks; `check` compares; `metadata` is what the file says.
"""

from adadino.export.write import Exported, ExportOptions, export

__all__ = ["ExportOptions", "Exported", "export"]
