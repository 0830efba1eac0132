"""The jobs that run on Ray: embedding, scoring, counting and training on many cores and machines.

`Embed` and `Score` are for ``map_batches`` of a Ray dataset; `Cluster` says where a job runs. Importing this
needs neither Ray nor TensorFlow.
"""

from __future__ import annotations

from bilm.ray.cluster import Cluster as Cluster
from bilm.ray.jobs import Embed as Embed
from bilm.ray.jobs import Score as Score

__all__ = ["Cluster", "Embed", "Score"]
