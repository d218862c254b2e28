"""The protocol of an evolver: asked once a night, it proposes changes; what it needs it gets from the night's `Search`.

An evolver decides nothing about profiles that are deployed or claimed: what it proposes is ranked on train by the
night, and confirmed on dev, which it never sees. To measure something itself it asks `Search.measure`, an ordinary
batch. It must propose the same when it is asked again in the same night: all that could come out otherwise a second
time (a model's answer, an agent's edit) goes through `Search.once`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from terminalbench.errors import TbenchError
from terminalbench.trainer.variants import Change

if TYPE_CHECKING:
    from terminalbench.trainer.evolvers.search import Search


@dataclass(frozen=True)
class Proposal:
    """A change to try. `parent` is the profile that it changes, None for the champion.

    `source` says what it was made from where the evolver's name does not; `evidence` are the trials that it rests on.
    """

    change: Change
    parent: str | None = None
    source: str = ""
    evidence: tuple[str, ...] = ()


class SearchStopped(TbenchError):
    """The search of this night ends early, with the reason; what was proposed before is explored."""


class Evolver(Protocol):
    """Proposes variants."""

    def propose(self, search: "Search") -> Iterator[Proposal]:
        """The proposals of a night, best first. The night takes the first few that can be made; may raise
        SearchStopped.
        """
        ...
