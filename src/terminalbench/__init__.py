"""A lab bench for coding agents: one TOML file, one Harbor job per profile, numbers you can trust."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from terminalbench.index.results import Results

__version__ = "0.1.0"
__all__ = ["__version__", "open_results"]


def open_results(root: "Path | str" = "results") -> "Results":
    """A results folder for programs: `.batches()`, `.trials()`, `.findings()`, each with `.to_polars()` and so on."""
    from terminalbench.index.results import open_results as opened

    return opened(root)
