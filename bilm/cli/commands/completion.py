"""``bilm completion``."""

import click
from click.shell_completion import get_completion_class


@click.command(short_help="Print a script that completes commands in a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a script that completes commands, flags and file names in SHELL.

    Where a shell looks for it:

    \b
      bash  bilm completion bash > ~/.local/share/bash-completion/completions/bilm
      zsh   bilm completion zsh > ~/.zfunc/_bilm, where ~/.zfunc is in the fpath
      fish  bilm completion fish > ~/.config/fish/completions/bilm.fish
    """  # noqa: D301
    script = get_completion_class(shell)
    if script is None:
        raise click.UsageError(f"this version of click has no completion for {shell}")
    main = click.get_current_context().find_root().command
    click.echo(script(main, {}, "bilm", "_BILM_COMPLETE").source())
