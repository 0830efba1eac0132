"""The jobs that read text on Ray: embedding, scoring, testing and counting on many cores, GPUs and machines.

`Embed` and `Score` are for ``map_batches`` of a Ray dataset. Importing this needs neither Ray nor TensorFlow.
"""

from __future__ import annotations

from bilm.ray.workers import Embed as Embed
from bilm.ray.workers import Score as Score

__all__ = ["Embed", "Score"]
