"""The evolver `listed`: the variants that the plan names, in their order, each once."""

from collections.abc import Iterator

from terminalbench.errors import UserError
from terminalbench.trainer.evolvers.search import Proposal, Search


class ListedEvolver:
    """Proposes the plan's variants that were not tried before and that the champion does not have already."""

    def propose(self, search: Search) -> Iterator[Proposal]:
        """Those of the list that are new tonight."""
        for index, change in enumerate(search.plan.table.variants):
            proposal = Proposal(change)
            try:
                search.check(proposal, f"variants[{index}]")
            except UserError:  # the champion has it already, or it was tried
                continue
            yield proposal
