"""`[evolver]` of a training plan."""

from typing import Literal

from terminalbench.strict import key, table


@table
class EvolverTable:
    """`[evolver]`: who proposes variants."""

    name: Literal["listed"] = key("`listed`: the variants of this file, in their order.", default="listed")
    candidates: int = key("Variants that a night explores.", default=4, minimum=1, maximum=64)
