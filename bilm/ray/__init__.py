"""Jobs on Ray: embedding, scoring, counting and training on many cores and machines.

`Embed` and `Score` are classes for ``map_batches`` of a Ray dataset; `Cluster` selects the cluster of a job.
Importing this package needs Ray, but not TensorFlow.

Raises:
    DataError: Ray is not installed.
"""

from bilm.errors import DataError

try:
    import ray.data  # noqa: F401
except ImportError as error:
    raise DataError("Ray is not installed: pip install 'ray[data,train]'") from error

from bilm.ray.cluster import Cluster
from bilm.ray.jobs import Embed, Score

__all__ = ["Cluster", "Embed", "Score"]
