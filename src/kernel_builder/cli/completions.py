"""``kernel-builder completions``: what makes a shell complete commands, options and their values."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from kernel_builder.errors import UsageError

SHELLS = ("bash", "zsh", "fish", "powershell")
_VARIABLE = "_KERNEL_BUILDER_COMPLETE"


@click.command("completions")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print a completion script, which also completes variants, backends and rules.

    \b
      bash        eval "$(kernel-builder completions bash)"            # in ~/.bashrc
      zsh         eval "$(kernel-builder completions zsh)"             # in ~/.zshrc
      fish        kernel-builder completions fish > ~/.config/fish/completions/kernel-builder.fish
      powershell  kernel-builder completions powershell | Out-String | Invoke-Expression   # in $PROFILE
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise UsageError(f"the installed click has no completions for {shell}", hint="pip install --upgrade click")
    click.echo(kind(ctx.find_root().command, {}, "kernel-builder", _VARIABLE).source())
