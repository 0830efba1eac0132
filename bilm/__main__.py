"""``python -m bilm`` is the ``bilm`` command."""

from bilm.cli import main

if __name__ == "__main__":
    main(prog_name="python -m bilm")
