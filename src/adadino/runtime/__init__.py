"""What runs a model over tiles: torch on any device, or onnxruntime without torch.

- `protocol` says what a caller gets: a `Runner`.
- `runner` opens one; it alone tells torch's models from exported ones.
- `forward` runs a torch model: how many tiles fit the memory, and what to do when they do not.
- `exported` opens an ONNX file and runs it.
- `devices` turns a device's name into a device.

Tiles (`Images`) go in; probabilities (`Answers`) come out, in the order of the tiles.
"""
