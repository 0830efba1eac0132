"""Files: reading JSON and HDF5 with clear errors; outputs written whole or not at all; locks."""

import os

PathLike = str | os.PathLike[str]
"""What a file is given by."""
