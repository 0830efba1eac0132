#!/usr/bin/env python
"""Fine-tune a biLM with the flags of bilm-tf's script of this name; the same as ``bilm restart``.

Where bilm-tf's script takes a number 0, which is its default, it means that of the run.
"""

import argparse

from bilm.__main__ import main

if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in ("batch_size", "n_epochs", "n_train_tokens"):
        parser.add_argument(f"--{name}", default="0")
    numbers, others = parser.parse_known_args()
    given = [f"--{name}={number}" for name, number in vars(numbers).items() if number != "0"]
    main(args=["restart", *given, *others], prog_name="bilm")
