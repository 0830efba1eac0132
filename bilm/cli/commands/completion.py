"""``bilm completion``."""

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete

_SHELLS = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}


@click.command(short_help="Print a shell completion script.")
@click.argument("shell", type=click.Choice([*_SHELLS]))
def completion(shell: str) -> None:
    """Print a script that completes commands, flags and file names in SHELL.

    To install it permanently:

    \b
      bash  bilm completion bash > ~/.local/share/bash-completion/completions/bilm
      zsh   bilm completion zsh > ~/.zfunc/_bilm, where ~/.zfunc is in the fpath
      fish  bilm completion fish > ~/.config/fish/completions/bilm.fish
    """  # noqa: D301
    main = click.get_current_context().find_root().command
    click.echo(_SHELLS[shell](main, {}, "bilm", "_BILM_COMPLETE").source())
