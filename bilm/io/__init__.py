"""Files: JSON and HDF5 read with their damage named; outputs written whole or not at all; locks."""

import os

PathLike = str | os.PathLike[str]
"""What a file is given by."""
