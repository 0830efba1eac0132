#!/usr/bin/env python
"""bilm-tf's script of this name, as ``bilm test --compat bilm-tf``: compute the perplexity."""

import sys

from bilm.__main__ import main

if __name__ == "__main__":
    if {"-h", "--help"} & {*sys.argv}:
        print(__doc__)
    main(args=["test", "--compat", "bilm-tf", *sys.argv[1:]], prog_name="bilm")
