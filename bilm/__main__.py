"""Entry point of ``bilm`` and ``python -m bilm``."""

import signal
from collections.abc import Sequence
from typing import NoReturn


def main(args: Sequence[str] | None = None, prog_name: str | None = None) -> NoReturn:
    """Run the command and exit; see `bilm.cli.process.run` for the arguments."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # During the imports there is nothing to clean up, and a traceback would not help.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from bilm.cli.process import run

    run(args, prog_name)


if __name__ == "__main__":
    main(prog_name="python -m bilm")
