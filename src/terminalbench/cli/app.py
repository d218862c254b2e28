"""One command from its arguments to its exit code: parse, run it, turn any ending into one message."""

import errno
import os
import select
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from terminalbench.cli.commands import MODULES, SECTIONS, ClosedPipe, LazyCommandGroup
from terminalbench.cli.output import lost_output, take_streams
from terminalbench.errors import EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE, TbenchError, UserError
from terminalbench.text.foreign import printable, printable_list

DEBUG = "--debug"


def _version(context: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if not wanted or context.resilient_parsing:
        return
    import platform
    from importlib.metadata import version

    from terminalbench.version import __version__

    click.echo(f"terminalbench {__version__} (harbor {version('harbor')}, Python {platform.python_version()})")
    context.exit()


@click.group(
    cls=LazyCommandGroup,
    sections=SECTIONS,
    package="terminalbench.cli",
    modules=MODULES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110, "show_default": True},
    no_args_is_help=True,
)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show versions.")
@click.option(
    DEBUG,
    is_flag=True,
    expose_value=False,
    help="Show the traceback of an error. Can be given anywhere on the command line.",
)
def app() -> None:
    """A lab bench for coding agents: one TOML file lists the tasks and the profiles."""
    try:
        Path.cwd()
    except OSError:
        raise UserError("the current folder no longer exists", hint="change to a folder that exists: cd ..") from None


def run_command(arguments: Sequence[str], prog_name: str) -> int:
    """Run one command and return its exit code; every error is one clear message on standard error."""
    arguments, debug = _split_debug(list(arguments))
    take_streams()
    try:
        result = app.main(args=arguments, prog_name=prog_name, standalone_mode=False)
        sys.stdout.flush()
    except TbenchError as error:
        _traceback(debug)
        for line in error.lines():
            _say(printable_list(f"error: {line}"))
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return EXIT_USAGE
    except (KeyboardInterrupt, click.Abort) as error:
        known = str(error.__cause__ or error) or ("nothing was started" if arguments[:1] == ["run"] else "")
        click.echo(f"interrupted: {known}" if known else "interrupted", err=True)
        return EXIT_INTERRUPTED
    except (BrokenPipeError, ClosedPipe) as error:
        if not _nobody_reads():
            _traceback(debug)
            _say(printable(f"error: {error}"))
            return EXIT_FAILURE
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    except OSError as error:
        _traceback(debug)
        _say(printable(f"error: {_os_error(error)}"))
        return EXIT_FAILURE
    except Exception as error:  # noqa: BLE001  the one place that turns a bug into a message
        _traceback(debug)
        _say(printable(f"error: unexpected {type(error).__name__}: {error} (run again with {DEBUG} to see where)"))
        return EXIT_FAILURE
    code = result if isinstance(result, int) else EXIT_OK
    lost = lost_output()
    if lost is not None:
        _say(printable(f"error: standard output: {lost.strerror} (the output is lost; what the command did is kept)"))
    return code if lost is None or code != EXIT_OK else EXIT_FAILURE


def _nobody_reads() -> bool:
    """Return whether standard output is a pipe or a socket whose reader has gone: it has seen enough."""
    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno(), 0)
    except OSError:  # not a file at all
        return False
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def _split_debug(arguments: list[str]) -> tuple[list[str], bool]:
    end = arguments.index("--") if "--" in arguments else len(arguments)
    debug = DEBUG in arguments[:end]
    return [a for i, a in enumerate(arguments) if a != DEBUG or i > end], debug


def _traceback(debug: bool) -> None:
    if debug:
        import traceback

        _say(traceback.format_exc().rstrip())


def _say(text: str) -> None:
    """A line on standard error, without any secret of the environment or of an env file that this process has read."""
    from terminalbench.experiments.envfile import secrets_read
    from terminalbench.secrets.values import Secrets

    click.echo((Secrets.of_environment() | secrets_read()).hide(text), err=True)


def _has_no_inodes(name: object) -> bool:
    """Return whether the file system around a file can hold no further one; those that count no files can."""
    place = Path(str(name)).absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        found = os.statvfs(place)
    except OSError:
        return False
    return found.f_files > 0 and found.f_favail == 0


def _os_error(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    hints = {
        errno.ENOSPC: "free some space; finished trials are kept, and tbench resume continues the run",
        errno.EDQUOT: "free some space; finished trials are kept, and tbench resume continues the run",
        errno.EROFS: "choose another results_root",
        errno.EACCES: "check who owns it, or choose another results_root",
        errno.ENAMETOOLONG: "the path is longer than the system allows; choose a shorter results_root",
    }
    hint = hints.get(error.errno or 0)
    if error.errno == errno.ENOSPC and error.filename and _has_no_inodes(error.filename):
        full = f"{where}the file system cannot hold more files, though it has free space"
        return f"{full} (it has no free inodes: remove files that are not needed, then run tbench resume)"
    return f"{where}{error.strerror or error}" + (f" ({hint})" if hint else "")
