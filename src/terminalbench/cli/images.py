"""`tbench images`: the images that the local sandbox has, fetched from registries or taken from archives; and
`tbench models`: whether models answer.
"""

import os
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from terminalbench.cli.commands import group
from terminalbench.cli.options import PATH, json_option
from terminalbench.cli.output import StatusLine, print_json
from terminalbench.errors import EXIT_FAILURE, EXIT_OK, TbenchError, UserError
from terminalbench.text.foreign import printable
from terminalbench.text.numbers import duration, moment, plural, size
from terminalbench.text.table import columns

if TYPE_CHECKING:
    from terminalbench.sandbox.cache import BuiltLayer
    from terminalbench.sandbox.images.store import ImageRecord, NameRecord, PullProgress


_TEXT_WIDTH = 48


@group("images", __name__)
def command() -> None:
    """The images of this machine for tasks with container_env = "local": no Docker, no daemon, no root.

    They are kept in the cache folder of this user, each layer once. Logins are those of docker login and podman login;
    mirrors and registries without TLS are those of containers-registries.conf.
    """


class _PullLine(StatusLine):
    """The progress of a pull."""

    def tell(self, progress: "PullProgress") -> None:
        """Show bytes, rate and layers."""
        spent = time.monotonic() - progress.started_at
        rate = progress.done / spent if spent > 0 else 0.0
        left = f", about {duration((progress.bytes - progress.done) / rate)} left" if rate and progress.done else ""
        self.renew(
            f"{progress.name}: {size(progress.done)} of {size(progress.bytes)}, {size(rate)}/s{left}; "
            f"{progress.ready} of {progress.layers} layers ready"
        )


def _document(image: "ImageRecord", names: Sequence["NameRecord"] = ()) -> dict[str, Any]:
    known = [{"name": one.name, "seen_at": one.seen_at} for one in names]
    about = {"architecture": image.architecture, "stored_at": image.stored_at}
    return {"digest": image.digest, "names": known, "size": image.size, "layers": len(image.layers), **about}


def _line(name: str, image: "ImageRecord") -> str:
    return f"{name}: {image.digest}, {plural(len(image.layers), 'layer')}, {size(image.size)}"


@click.command("pull")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@json_option
def pull_command(names: tuple[str, ...], as_json: bool) -> int:
    """Fetch images from their registries, except layers that are already on this machine.

    \b
    NAME is as in a Dockerfile:
      ubuntu:24.04                    of Docker Hub
      ghcr.io/owner/name:tag          of another registry
      name@sha256:...                 exactly this one

    Exit code 1: one could not be fetched; the others were.
    """
    from terminalbench.sandbox.images.store import ImageStore

    store, line, code, told = ImageStore(), _PullLine(quiet=as_json), EXIT_OK, []
    for name in names:
        try:
            image = store.pull(name, line.tell)
        except TbenchError as error:
            line.done()
            click.echo(f"error: {error}", err=True)
            told.append({"name": name, "error": str(error)})
            code = max(code, error.exit_code)
            continue
        line.done()
        told.append({"name": name, **_document(image)})
        if not as_json:
            click.echo(_line(name, image))
    if as_json:
        print_json(told)
    return code


@click.command("import")
@click.argument("place", metavar="PATH", type=PATH)
@click.argument("name", metavar="NAME")
@click.option("--tag", help="Name of the image, if the archive holds several.")
@json_option
def import_command(place: Path, name: str, tag: str | None, as_json: bool) -> int:
    """Import an image from an archive or a folder, as NAME.

    \b
    PATH is an OCI layout (a folder or a tar), an archive of docker save,
    or a folder with a root file system.
    """
    from terminalbench.sandbox.images.store import ImageStore

    line = _PullLine(quiet=as_json)
    image = ImageStore().load(place, name, tag, line.tell)
    line.done()
    if as_json:
        print_json({"name": name, **_document(image)})
    else:
        click.echo(_line(name, image))
    return EXIT_OK


@click.command("list")
@click.option(
    "--builds", is_flag=True, help="List the layers built for tasks instead of images, most recently used first."
)
@json_option
def list_command(builds: bool, as_json: bool) -> int:
    """List the images of this machine, by name."""
    from terminalbench.sandbox.cache import built_layers
    from terminalbench.sandbox.images.store import ImageStore

    layers = built_layers()
    if builds:
        return _list_builds(layers, as_json=as_json)
    found = list(ImageStore().images())
    if as_json:
        print_json([_document(image, names) for image, names in found])
        return EXIT_OK
    rows = [
        [name, image.digest[7:19], size(image.size), moment(image.stored_at)]
        for image, names in found
        for name in [one.name for one in names] or ["(no name)"]
    ]
    if rows:
        click.echo(columns([["image", "digest", "fetched", "stored"], *sorted(rows)], left=(0, 1, 3)))
    else:
        click.echo("no images on this machine; tbench images pull NAME fetches one")
    if layers:
        click.echo(f"\nbuilt for tasks: {_layers_said(layers)} (--builds lists them)")
    return EXIT_OK


def _list_builds(layers: list["BuiltLayer"], *, as_json: bool) -> int:

    from msgspec import to_builtins

    if as_json:
        print_json([{"folder": str(one.folder), "used_at": one.used_at, **to_builtins(one.note)} for one in layers])
        return EXIT_OK
    rows = []
    for one in layers:
        used = moment(datetime.fromtimestamp(one.used_at, UTC).isoformat())
        said = " ".join(printable(one.note.text).split())[:_TEXT_WIDTH]
        rows.append([said, size(one.note.size) if one.note.size is not None else "?", used])
    click.echo(columns([["instruction", "size", "used"], *rows], left=(0, 2)) if rows else "no layers were built yet")
    return EXIT_OK


def _layers_said(layers: list["BuiltLayer"]) -> str:

    known = [one.note.size for one in layers if one.note.size is not None]
    least = "" if len(known) == len(layers) else "at least "
    return f"{plural(len(layers), 'layer')}, {least}{size(sum(known))}"


@click.command("show")
@click.argument("name", metavar="NAME")
@json_option
def show_command(name: str, as_json: bool) -> int:
    """Show one image of this machine: its layers, its settings, and what was built on it."""
    from terminalbench.sandbox.cache import built_layers
    from terminalbench.sandbox.images.store import ImageStore
    from terminalbench.sandbox.root_filesystem import IMAGE

    store = ImageStore()
    image = store.find(name)
    if image is None:
        click.echo(f"error: {name} is not on this machine (tbench images pull {name})", err=True)
        return EXIT_FAILURE
    if as_json:
        print_json(image)
        return EXIT_OK
    settings = image.settings
    called = next((names for found, names in store.images() if found.digest == image.digest), [])
    lines = {
        "names": ", ".join(one.name for one in called) or "none",
        "digest": image.digest,
        "for": f"linux/{image.architecture}",
        "working folder": settings.workdir,
        "user": settings.user or "root",
        "entrypoint": " ".join(settings.entrypoint) or "none",
        "variables": ", ".join(sorted(settings.env)) or "none",
        "stored": image.stored_at,
    }
    built = [one for one in built_layers() if one.note.base == f"{IMAGE}{image.digest}"]
    lines["built on it"] = _layers_said(built) if built else "nothing"
    click.echo("\n".join(f"{key:<15} {value}" for key, value in lines.items()))
    rows = [[layer.digest[7:19], size(layer.size)] for layer in image.layers]
    click.echo(columns([["layer", "fetched"], *rows], left=(0,)))
    return EXIT_OK


@click.command("prune")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--days", type=click.FloatRange(min=0), default=30.0, help="Remove images not used for this many days.")
@click.option("--yes", is_flag=True, help="Remove them. Without --yes, only list what would be removed.")
@json_option
def prune_command(names: tuple[str, ...], days: float, yes: bool, as_json: bool) -> int:
    """Remove images that were not used for a while, or those that you name; without --yes, only list them.

    Layers that were built on them for tasks are removed too, and so are layers that no image uses any more.
    What a running sandbox uses is kept.
    """
    from terminalbench.sandbox.cache import prune_layers
    from terminalbench.sandbox.images.store import ImageStore
    from terminalbench.sandbox.root_filesystem import IMAGE

    store = ImageStore()
    for name in names:
        if store.find(name) is None and not (name.startswith("sha256:") and store.image(name) is not None):
            raise UserError(f"{name} is not on this machine", hint="tbench images list")
    gone = store.prune(list(names) or None, unused_days=None if names else days, dry=not yes)
    bases = {f"{IMAGE}{digest}" for digest in gone.digests} if names else None
    built = prune_layers(bases, days, dry=not yes)
    if as_json:
        told = {"images": gone.images, "layers": gone.layers, "bytes": gone.bytes, "builds": len(built), "removed": yes}
        print_json(told)
        return EXIT_OK
    for name in gone.images:
        click.echo(name)
    what = f"{plural(len(gone.images), 'image')} and {plural(gone.layers, 'layer')}, {size(gone.bytes)}"
    what += f"; built for tasks: {_layers_said(built)}" if built else ""
    click.echo(f"removed: {what}" if yes else f"would remove: {what} (--yes does it)")
    return EXIT_OK


@group("models", __name__)
def models_command() -> None:
    """The models, as profiles, judges and nights name them."""


@click.command("check")
@click.argument("specs", metavar="SPEC...", nargs=-1, required=True)
@json_option
def check_command(specs: tuple[str, ...], as_json: bool) -> int:
    """Send models a short question: does each answer, how fast, and can it call tools?

    \b
    SPEC is a model as a judge or a profile names it:
      local:FILE.gguf[,num_ctx=N]   a file of this machine (extra local-model)
      ollama:NAME:TAG               a model of an Ollama server
      claude-code[:NAME]            the Claude Code CLI
      PROVIDER/NAME                 any LiteLLM name

    Keys come from the environment and from experiments/.env of the project, which wins. Each model is asked two
    or three questions, which a paid model bills. Exit code 1: one does not answer; 2: one does not exist, or its
    key or extra is missing.
    """
    from terminalbench.llm.check import check_model
    from terminalbench.overnight.models import model_environment

    os.environ.update(model_environment(Path.cwd()))
    reports = []
    for spec in specs:
        report = check_model(spec)
        reports.append(report)
        if not as_json:
            click.echo("\n".join(report.lines()), err=report.problem is not None)
    if as_json:
        print_json(reports)
    return max(report.exit_code for report in reports)
