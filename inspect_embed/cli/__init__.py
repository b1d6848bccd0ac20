"""The command `inspect-embed`: one file a command. Only this package knows click, the streams and exit codes.

Exit status: 0 when the question was answered (also when the reader of a pipe left early), 1 for an error that
the message explains, 2 for a call that could not be understood, 130 when interrupted.
"""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module
from typing import NoReturn

import click

from inspect_embed import __version__
from inspect_embed.errors import InspectEmbedError

COMMANDS = (
    ("info", "What is in a checkpoint: family, tables, widths, types, tokenizer, positions."),
    ("tokens", "Words to ids; ids to tokens; how a text is cut; the vocabulary."),
    ("vector", "The numbers of a token's row, and its length."),
    ("embed", "Token rows + position rows of a text: what the first layer reads."),
    ("similarity", "How alike words are, pair by pair."),
    ("neighbors", "The tokens nearest to a word."),
    ("params", "The ledger of parameters, and each part's share."),
    ("project", "Maps of tokens for slides: PCA, t-SNE, UMAP; as a figure, a page, coordinates."),
    ("positions", "How alike positions are, by distance and by place; wavelengths; slopes."),
    ("health", "Rows that are zero, broken, doubled, hardly trained; the shape of the whole."),
    ("compare", "What changed between two checkpoints, or along a series of them."),
    ("export", "Rows of a table as files that other programs read."),
)
"""The commands and what each answers; each is a module of this package."""


_TIDY = frozenset(("fsspec", "joblib", "matplotlib", "pyarrow", "sklearn"))
"""Libraries that have work to do when a process ends."""


class _Commands(click.Group):
    """Commands that are imported when they are called: `--help` needs none of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name, _ in COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in dict(COMMANDS):
            return None
        command: click.Command = import_module(f"{__name__}.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = dict(COMMANDS)
        if args and args[0] not in known and not args[0].startswith("-"):
            raise click.UsageError(
                f"there is no command {args[0]!r}; the commands are {', '.join(known)}. "
                f"Call {ctx.command_path} neighbors CKPT WORD, for instance.",
                ctx,
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([*COMMANDS])


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Example:  inspect-embed neighbors checkpoints/toy ·girl",
)
@click.version_option(__version__, prog_name="inspect-embed")
def cli() -> None:
    """Look inside the embedding tables of saved language models.

    CKPT is a folder, a file (.safetensors, .gguf, .bin, .pt), an index file or a hub cache folder. A leading space is
    part of a token and is written as a middle dot: ·girl.
    """


def run(arguments: list[str]) -> int:
    """Run one command; returns its exit status. The one place where errors become messages."""
    _prepare_streams()
    try:
        # Arguments stay as they are typed: a token may be * or ~.
        cli.main(arguments, prog_name="inspect-embed", standalone_mode=False, windows_expand_args=False)
        sys.stdout.flush()
    except InspectEmbedError as error:
        _complain(f"error: {error}", error.hint)
        return 1
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx is not None else "inspect-embed"
        _complain(f"error: {error.format_message()}", f"`{command} --help` shows how to call it.")
        return 2
    except click.ClickException as error:
        _complain(f"error: {error.format_message()}")
        return 1
    except (KeyboardInterrupt, click.Abort):
        _complain("interrupted")
        return 130
    except BrokenPipeError:
        # The reader has seen enough. Python would complain about the closed pipe once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        _complain(
            f"error: {error.strerror or error}: {error.filename}" if error.filename else f"error: {error}"
        )
        return 1
    except MemoryError:
        _complain("error: not enough memory for this table.", "Ask about fewer words at a time.")
        return 1
    return 0


def main() -> None:
    """The program."""
    gc.disable()
    arguments = sys.argv[1:]
    if not all(map(str.isascii, arguments)):
        from inspect_embed.spelling import recover

        arguments = [recover(argument) for argument in arguments]
    _leave(run(arguments))


def _leave(status: int) -> NoReturn:
    """End the process. Taking an interpreter apart takes longer than many an answer, and nothing waits in it.

    Libraries that tidy up after themselves at the end are given the chance.
    """
    if not _TIDY.isdisjoint(sys.modules):
        sys.exit(status)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):  # the reader is gone
            continue
    os._exit(status)


def _prepare_streams() -> None:
    """No character may stop the program: what a stream's encoding lacks is written as an escape."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _complain(message: str, hint: str = "") -> None:
    """Write to stderr, where names from a file must steer nothing; a closed stderr must not become a second error."""
    from inspect_embed.report import printable

    lines = [*message.splitlines(), *(f"hint: {hint}".splitlines() if hint else ())]
    try:
        sys.stdout.flush()
        sys.stderr.write("".join(f"{printable(line)}\n" for line in lines))
        sys.stderr.flush()
    except OSError:
        pass
