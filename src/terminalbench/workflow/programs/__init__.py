"""Small programs that run beside the code they look at, with the interpreters that are there (Python 3.6, Node 18)."""

from functools import cache
from importlib.resources import files


@cache
def program(name: str) -> str:
    """The text of a program, to be given to an interpreter in the workspace."""
    return files(__name__).joinpath(name).read_text(encoding="utf-8")
