#!/usr/bin/env python
"""bilm-tf's script of this name, as ``bilm restart``: fine-tune a biLM.

As in bilm-tf, a number of 0, the default, stands for the number of the run, but of n_train_tokens
it counts the text.
"""

import argparse

from bilm.__main__ import main

if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in ("batch_size", "n_epochs", "n_train_tokens"):
        parser.add_argument(f"--{name}", default="0")
    numbers, others = parser.parse_known_args()
    flags = [f"--{name}={number}" for name, number in vars(numbers).items() if number != "0"]
    main(args=["restart", *flags, *others], prog_name="bilm")
