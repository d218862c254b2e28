"""Harbor's environments for trials: what each needs, and the options that it takes.

What is known comes from harbor.json, made by scripts/harbor_table.py; Harbor itself is not loaded.
"""

import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from terminalbench import registry
from terminalbench.errors import did_you_mean
from terminalbench.experiments.agents import harbor_environments
from terminalbench.experiments.tables import RunTable
from terminalbench.experiments.task_folder import declared_names
from terminalbench.records.trial import ON_HOST
from terminalbench.secrets.patterns import secrets_in
from terminalbench.strict import Problems

if TYPE_CHECKING:
    from terminalbench.experiments.experiment import Experiment

OF_THIS_MACHINE = ("docker", "podman", "kata", "apple-container")
"""Environments that build images on this machine, which the next batch can use."""

_FAMILIES = {
    "ack": ("KUBECONFIG",), "cwsandbox": ("CWSANDBOX", "WANDB"), "ec2": ("AWS",), "islo": ("ISLO",),
    "gke": ("KUBECONFIG", "GOOGLE", "GCP", "CLOUDSDK"), "mosaic": ("MOSAIC",), "openshift": ("KUBECONFIG",),
    "prime": ("PRIME",), "singularity": ("SINGULARITY", "APPTAINER"), "smol": ("SMOL",),
}  # fmt: skip
"""What the variables begin with that the client of a provider reads, where the environment's own check names none."""


def usual_environment() -> str:
    """Return where trials run if nobody says: in Docker where it is installed, else in the local sandbox."""
    return "docker" if shutil.which("docker") else "local"


def check_environment(run: RunTable, problems: Problems) -> None:
    """Note an environment that is not there, and options that it does not take or lacks."""
    name, at = run.container_env, "run.container_options"
    ours = registry.BUILTIN["environments"]
    if name not in harbor_environments() and name not in ours and not registry.is_import_path(name):
        known = sorted({*harbor_environments(), *registry.names("environments")})
        if name not in known:
            hint = did_you_mean(name, known, limit=40)
            problems.add("run.container_env", f'no environment is called "{name}"', hint)
            return
    for secret in secrets_in(run.container_options, at):
        problems.add(secret, "looks like a secret", "put it in the env file, where environments look for keys")
    if name == "local":
        for option in run.container_options:
            problems.add(f"{at}.{option}", "the local sandbox takes no options", "set the network in run.network")
    _check_images(run, problems)
    if (info := harbor_environments().get(name)) is not None:
        _check_options(name, info, run, problems)


def image_entries(run: RunTable, root: Path) -> dict[str, str]:
    """Return what `[run.images]` says stands for images: paths are absolute, those of the file begin where it is."""
    return {pattern: _place(value, root) for pattern, value in run.images.items()}


def _place(value: str, root: Path) -> str:
    return str((root / Path(value).expanduser()).resolve()) if value.startswith(("/", ".", "~")) else value


def _check_images(run: RunTable, problems: Problems) -> None:
    if run.container_env != "local":
        only = 'works only with container_env = "local"'
        if run.images:
            problems.add("run.images", only, "other environments fetch images themselves")
        if run.ca:
            problems.add("run.ca", only, "for other environments, use an image that trusts the certificate")
    for pattern, value in run.images.items():
        if not value.strip() or value != value.strip():
            problems.add(f"run.images.{pattern}", "names nothing", 'write "host", an image, a folder or an archive')
        elif value != ON_HOST and ":" not in value and did_you_mean(value.lower(), [ON_HOST], limit=0):
            hint = f'write "{ON_HOST}", or the image with its tag ("{value}:latest")'
            problems.add(f"run.images.{pattern}", f'"{value}" looks like "{ON_HOST}"', hint)


def _check_options(name: str, info: dict[str, Any], run: RunTable, problems: Problems) -> None:
    at, known = "run.container_options", info.get("options", [])
    for option in run.container_options:
        if option not in known:
            hint = did_you_mean(option, known, limit=40) if known else "it has none"
            problems.add(f"{at}.{option}", f"environment {name} does not have this option", hint)
    if missing := [option for option in info.get("required", []) if option not in run.container_options]:
        example = ", ".join(f'{option} = "..."' for option in missing)
        problems.add(at, f"environment {name} needs {', '.join(missing)}", f"{at} = {{ {example} }}")


def environment_needs(experiment: "Experiment") -> Iterator[str]:
    """Return what the environment needs and this machine lacks: packages, and a key in the environment or an env file.

    A login that the provider keeps in a file of its own is not known here: a run asks the environment itself.
    """
    name = experiment.run.container_env
    info = harbor_environments().get(name, {})
    missing = [package for package in info.get("packages", ()) if not _installed(package)]
    if missing:
        are = "are" if len(missing) > 1 else "is"
        install = f'pip install "harbor[{info["extra"]}]"'
        yield f"environment {name} needs {' and '.join(missing)}, which {are} not installed: {install}"
    variables = info.get("variables", ())
    if variables and not {*variables} & {*os.environ, *_told(experiment)}:
        which = f"{variables[0]}, which is not" if len(variables) == 1 else f"{' or '.join(variables)}: none is"
        yield f"environment {name} needs {which} set here"


def own_variables(name: str, shell: Iterable[str]) -> list[str]:
    """Those variables of a shell that are for the environment: its provider's, for the process that calls it.

    They do not reach the sandbox.
    """
    named = harbor_environments().get(name, {}).get("variables", ())
    families = {*_FAMILIES.get(name, ()), *(variable.partition("_")[0] for variable in named)}
    return [variable for variable in shell if variable.partition("_")[0] in families]


def _told(experiment: "Experiment") -> Iterator[str]:
    for file in {profile.env_file for profile in experiment.profiles}:
        yield from declared_names((), file) or ()


def _installed(package: str) -> bool:
    from importlib.metadata import PackageNotFoundError, version

    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True
