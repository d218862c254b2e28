"""A lab bench for coding agents: one TOML file, one Harbor job per profile, numbers you can trust.

The names below are the public API (docs/python.md); everything else is internal and may change.
"""

from terminalbench.version import __version__

TYPE_CHECKING = False  # that of `typing` takes longer to load than all the rest
if TYPE_CHECKING:
    from terminalbench.experiments.config import load
    from terminalbench.lab.analyze import analyze
    from terminalbench.lab.compare import compare
    from terminalbench.lab.plan import plan
    from terminalbench.lab.resume import resume
    from terminalbench.lab.run import run
    from terminalbench.live.status import open_results

__all__ = ["__version__", "analyze", "compare", "load", "open_results", "plan", "resume", "run"]

_MODULES = {"load": "terminalbench.experiments.config", "open_results": "terminalbench.live.status"}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Each function is imported when it is first asked for: `import terminalbench` alone loads nothing."""
        if name.startswith("_") or name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(_MODULES.get(name, f"terminalbench.lab.{name}")), name)


def __dir__() -> list[str]:
    return __all__
