"""A whole scene: read -> tile -> model -> blend -> write, streaming from top to bottom.

`predict` tells the story and `options` are its settings. `pair` opens the dates; `tiles` reads
ahead in threads; `forward` runs the model; `stream` blends its answers into rows; `journal` keeps
those on disk, so that a killed run goes on; `outputs` makes files of them.
"""

from adadino.scene.options import SceneOptions
from adadino.scene.predict import predict_scene
from adadino.scene.result import SceneResult

__all__ = ["SceneOptions", "SceneResult", "predict_scene"]
