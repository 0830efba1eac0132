#!/usr/bin/env python
"""bilm-tf's script of this name, as ``bilm train --recipe bilm-tf --preset original``: train a biLM."""

import sys

from bilm.__main__ import main

if __name__ == "__main__":
    flags = {word.partition("=")[0] for word in sys.argv[1:]}
    if flags & {"-h", "--help"}:
        print(__doc__)
    model = [] if flags & {"--preset", "--options", "--config"} else ["--preset", "original"]
    main(args=["train", "--recipe", "bilm-tf", *model, *sys.argv[1:]], prog_name="bilm")
