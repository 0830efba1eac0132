#!/usr/bin/env python
"""Fine-tune a biLM with the flags of bilm-tf's script of this name; the same as ``bilm restart``."""

import sys

from bilm.__main__ import main

if __name__ == "__main__":
    main(args=["restart", *sys.argv[1:]], prog_name="bilm")
