#!/usr/bin/env python
"""Perplexity as bilm-tf's script of this name computes it; the same as ``bilm test --compat bilm-tf``."""

import sys

from bilm.__main__ import main

if __name__ == "__main__":
    main(args=["test", "--compat", "bilm-tf", *sys.argv[1:]], prog_name="bilm")
