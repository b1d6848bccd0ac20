"""What the commands share: their options, opening what they name, and writing the answer."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

import click

from inspect_embed.errors import OutputError, TokenError
from inspect_embed.outputs import FIGURES, OUTPUTS, Style
from inspect_embed.report import Note, Report, printable, translate

if TYPE_CHECKING:
    from inspect_embed.checkpoint import Checkpoint

_STYLE = "inspect_embed.figure"
_VERBOSE = "inspect_embed.verbose"
Function = TypeVar("Function", bound=Callable[..., Any])

checkpoint_argument = click.argument("checkpoint", metavar="CKPT")
words_argument = click.argument("words", nargs=-1, metavar="[WORD]...")
words_file_option = click.option(
    "--words-file", metavar="FILE", help="Take words from FILE too, one a line; - is standard input."
)
mean_option = click.option(
    "--mean", is_flag=True, help="Let a word of several tokens be the mean of their rows."
)


def table_option(*roles: str) -> Callable[[Function], Function]:
    """Which table is asked."""
    return click.option(
        "--table", type=click.Choice(roles), default=roles[0], show_default=True, help="Which table."
    )


def common_options(function: Function) -> Function:
    """The options that every command takes."""
    formats = [*OUTPUTS]
    for option in reversed(
        (
            click.option("--tensor", metavar="NAME", help="Use this tensor as the table."),
            click.option(
                "--tokenizer", metavar="PATH", help="Use this tokenizer (a file, or a folder with one)."
            ),
            click.option(
                "--allow-partial", is_flag=True, help="Read what is whole in a file that is cut short."
            ),
            click.option(
                "--format",
                "format_",
                type=click.Choice(formats),
                help="How to write the answer (default: text).",
            ),
            click.option(
                "-o", "--output", metavar="FILE", help="Write to FILE; its suffix tells the format."
            ),
            click.option("--ascii", is_flag=True, help="Write ASCII alone: ·girl becomes \\x20girl."),
            click.option(
                "--verbose",
                is_flag=True,
                expose_value=False,
                callback=_keep_verbose,
                help="Say on stderr how many bytes were fetched over the network.",
            ),
        )
    ):
        function = option(function)
    return function


def _keep_verbose(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    ctx.meta[_VERBOSE] = value


def figure_options(function: Function) -> Function:
    """The options of commands that draw; `write_answer` reads them."""

    def keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        ctx.meta[f"{_STYLE}.{param.name}"] = value

    for option in reversed(
        (
            click.option(
                "--theme",
                type=click.Choice(["light", "dark"]),
                default="light",
                show_default=True,
                expose_value=False,
                callback=keep,
                help="Colours of the figure.",
            ),
            click.option(
                "--transparent",
                is_flag=True,
                expose_value=False,
                callback=keep,
                help="Leave the figure's background out.",
            ),
            click.option(
                "--size",
                type=_Size(),
                default="1920x1080",
                show_default=True,
                expose_value=False,
                callback=keep,
                help="Size of the figure in pixels.",
            ),
        )
    ):
        function = option(function)
    return function


class _Size(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """Width x height in pixels."""

    name = "WxH"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        width, _, height = str(value).lower().partition("x")
        if not (width.isdecimal() and height.isdecimal()):
            self.fail(f"{value!r} is no size; give one like 1920x1080", param, ctx)
        size = int(width), int(height)
        if not (all(320 <= side <= 16_384 for side in size) and 1 / 3 <= size[0] / size[1] <= 4):
            self.fail(
                f"{value}: each side has 320 to 16,384 pixels, and the width 1/3 to 4 heights", param, ctx
            )
        return size


def _style() -> Style:
    """How the figure is to look, as the options of the running command say."""
    meta = click.get_current_context().meta
    width, height = meta.get(f"{_STYLE}.size", (1920, 1080))
    return Style(
        meta.get(f"{_STYLE}.theme", "light"), meta.get(f"{_STYLE}.transparent", False), width, height
    )


def open_ckpt(path: str, tokenizer: str | None, allow_partial: bool) -> Checkpoint:
    """Open what the user named."""
    from inspect_embed.checkpoint import open_checkpoint

    return open_checkpoint(path, tokenizer, allow_partial, _show_fetching if "://" in path else None)


def _show_fetching(done: int, total: int) -> None:
    """Draw on a terminal how far a fetch has got; the last call wipes it away."""
    if sys.stderr is None or not sys.stderr.isatty():
        return
    bar = "#" * (30 * done // max(total, 1))
    line = f"\rfetching [{bar:30}] {done / 1e6:,.1f} of {total / 1e6:,.1f} MB"
    sys.stderr.write(line if done < total else "\r\x1b[K")
    sys.stderr.flush()


def put_first(report: Report, view: str | None) -> Report:
    """The report with this figure as the one that is drawn."""
    if view is None:
        return report
    if view not in report.figures:
        raise OutputError(
            f"This answer has no figure {view!r}.", f"It has {', '.join(report.figures) or 'none'}."
        )
    return replace(report, figures={view: report.figures[view], **report.figures})


@contextmanager
def show_progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """Tell on stderr how far a long question is; says nothing where nobody watches."""
    watched = sys.stderr is not None and sys.stderr.isatty()

    def tell(done: int, total: int) -> None:
        if watched:
            sys.stderr.write(f"\r{what}: {done:,} of {total:,}")
            sys.stderr.flush()

    try:
        yield tell
    finally:
        if watched:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def read_words(words: Iterable[str], words_file: str | None) -> list[str]:
    """The words of the command line, then those of the file: one a line, blanks at its start kept."""
    found = list(words)
    if words_file is not None:
        data = sys.stdin.buffer.read() if words_file == "-" else Path(words_file).read_bytes()
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise TokenError(f"{words_file} is not UTF-8 text.", "Save it as UTF-8.") from None
        found += [line for line in text.splitlines() if line.strip()]
    return found


def write_answer(
    report: Report, checkpoints: Iterable[Checkpoint], format_: str | None, output: str | None, ascii_: bool
) -> None:
    """Write a report where, and as, it was asked for; then what is wrong with the files, on stderr."""
    name = format_ or _format_of(output)
    module = import_module(f"inspect_embed.outputs.{name}")
    to_stream = output is None or output == "-"
    if ascii_ or (to_stream and not _can_write("·", sys.stdout.encoding)):
        # Before the layout, so that columns stay aligned.
        report = translate(report, _ascii)
    content: str | bytes
    if name in FIGURES:
        if output is None or to_stream:
            raise click.UsageError("a figure needs a file: give -o FILE")
        drawing = module.draw(report, Path(output).suffix.lower(), _style())
        content = drawing.content
        notes = [block.text for block in report.blocks if isinstance(block, Note)]
        for note in (*notes, *drawing.notes):
            sys.stderr.write(f"note: {printable(note)}\n")
    elif name == "json":
        narrow = to_stream and not _can_write("\U0010ffff", sys.stdout.encoding)
        content = module.render(report, ascii=ascii_ or narrow)
    else:
        content = module.render(report)
    if isinstance(content, str) and to_stream:
        sys.stdout.write(content)
    elif output is not None:
        # A lone surrogate has no bytes in UTF-8: it is written as its escape.
        data = content if isinstance(content, bytes) else content.encode("utf-8", "backslashreplace")
        write_file(Path(output), data)
    for checkpoint in checkpoints:
        for warning in checkpoint.warnings:
            sys.stdout.flush()
            sys.stderr.write(f"warning: {printable(warning)}\n")
        if click.get_current_context().meta.get(_VERBOSE):
            sys.stdout.flush()
            sys.stderr.write(f"{_say_traffic(checkpoint)}\n")


def _say_traffic(checkpoint: Checkpoint) -> str:
    """What was fetched of a checkpoint, in a sentence."""
    traffic = getattr(checkpoint.folder, "traffic", None)
    if traffic is None:
        return f"{checkpoint.location}: nothing was fetched over the network"
    kept = f"; {traffic.n_kept_bytes:,} bytes were on disk already" if traffic.n_kept_bytes else ""
    return (
        f"{checkpoint.location}: {traffic.n_bytes:,} bytes fetched in {traffic.n_requests:,} requests{kept}"
    )


def write_file(path: Path, content: bytes) -> None:
    """Write beside the file, then rename: what was there is replaced as a whole, or not at all."""

    def write(file: BinaryIO) -> None:
        file.write(content)

    write_files({path: write})


def write_files(parts: Mapping[Path, Callable[[BinaryIO], None]]) -> None:
    """Write files that belong together: each beside its place, and only when all are whole are they renamed."""
    import tempfile

    temporaries: list[tuple[str, Path]] = []
    path = Path()
    try:
        for path, write in parts.items():
            if path.is_dir():
                raise OutputError(f"{path} is a folder.", "Give the name of a file.")
            descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
            temporaries.append((temporary, path))
            with os.fdopen(descriptor, "wb") as file:
                write(file)
            mask = os.umask(0)
            os.umask(mask)
            os.chmod(temporary, 0o666 & ~mask)  # a temporary file is private; the answer is as any file is
        for temporary, path in temporaries:
            os.replace(temporary, path)
    except OSError as error:
        raise OutputError(
            f"{path} cannot be written: {error.strerror}.", "Give another path with -o."
        ) from None
    finally:
        for temporary, _ in temporaries:
            Path(temporary).unlink(missing_ok=True)


def _format_of(output: str | None) -> str:
    if output is None or output == "-":
        return "text"
    suffix = Path(output).suffix.lower()
    suffixes = {end: name for name in (*OUTPUTS, *FIGURES) for end in _suffixes(name)}
    if suffix not in suffixes:
        raise click.UsageError(
            f"{output}: the suffix {suffix or '(none)'} tells no format; known are {' '.join(suffixes)}. "
            f"Or give --format."
        )
    return suffixes[suffix]


def _suffixes(name: str) -> tuple[str, ...]:
    suffixes: tuple[str, ...] = import_module(f"inspect_embed.outputs.{name}").SUFFIXES
    return suffixes


def _can_write(text: str, encoding: str | None) -> bool:
    try:
        text.encode(encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _ascii(text: str) -> str:
    """The text in ASCII. A middle dot that is shown always means a space: a real one is shown escaped."""
    if text.isascii():
        return text
    from inspect_embed.spelling import to_ascii

    return to_ascii(text.replace("·", r"\x20"))
