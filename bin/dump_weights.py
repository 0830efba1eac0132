#!/usr/bin/env python
"""bilm-tf's script of this name, as ``bilm dump-weights``: write the weights to HDF5."""

import sys

from bilm.__main__ import main

if __name__ == "__main__":
    main(args=["dump-weights", *sys.argv[1:]], prog_name="bilm")
