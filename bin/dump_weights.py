#!/usr/bin/env python
"""Write the weights to HDF5 as bilm-tf's script of this name does; the same as ``bilm dump-weights``."""

import sys

from bilm.__main__ import main

if __name__ == "__main__":
    main(args=["dump-weights", *sys.argv[1:]], prog_name="bilm")
