"""What runs a model over tiles, whatever its file: PyTorch or ONNX, on whichever device."""
