"""Files: JSON and HDF5 with clear errors for damaged ones; outputs written whole or not at all; locks."""
