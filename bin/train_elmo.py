#!/usr/bin/env python
"""Train a biLM with the flags of bilm-tf's script of this name; the same as ``bilm train``."""

import sys

from bilm.__main__ import main

if __name__ == "__main__":
    main(args=["train", *sys.argv[1:]], prog_name="bilm")
