#!/usr/bin/env python
"""Train a biLM with the flags of bilm-tf's script and its recipe: ``bilm train --recipe bilm-tf``."""

import sys

from bilm.__main__ import main

if __name__ == "__main__":
    main(args=["train", "--recipe", "bilm-tf", *sys.argv[1:]], prog_name="bilm")
