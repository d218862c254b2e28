"""List prices of models, from the recorded table `prices.json`. A model that is not in it has no price."""

import re
from functools import cache
from importlib.resources import files

import msgspec

from terminalbench.records import Usage

_DATE = re.compile(r"[-@](?:20\d{2}-?\d{2}-?\d{2}|\d{4})$")
_SAME_SELLER = {"google": "gemini", "moonshotai": "moonshot", "x-ai": "xai", "z-ai": "zai", "mistralai": "mistral"}


class Price(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """USD per million tokens. Cached tokens without a price of their own cost as much as fresh ones."""

    provider: str
    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None


class PriceTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A price list with its version and where it was taken from."""

    version: str
    origin: str
    unit: str
    models: dict[str, Price]

    @property
    def source(self) -> str:
        """What `Usage.cost_source` says of a cost computed from this table."""
        return f"prices:{self.version}"

    def find(self, model: str) -> Price | None:
        """The price of `model`, given bare or as "provider/model"; never that of another seller's namesake."""
        seller, slash, rest = model.strip().lower().rpartition("/")
        price = self.models.get(rest) or self.models.get(_DATE.sub("", rest))
        if price is None or not slash:
            return price
        maker = seller.rpartition("/")[2]
        return price if _SAME_SELLER.get(maker, maker) == price.provider else None

    def cost(self, model: str | None, usage: Usage) -> float | None:
        """What `usage` costs with `model`; None when the price or the tokens are not known."""
        price = self.find(model) if model else None
        if price is None or usage.input_tokens is None or usage.output_tokens is None:
            return None
        read = price.input if price.cache_read is None else price.cache_read
        write = price.input if price.cache_write is None else price.cache_write
        total = (
            usage.input_tokens * price.input
            + usage.output_tokens * price.output
            + (usage.cache_read_tokens or 0) * read
            + (usage.cache_write_tokens or 0) * write
        )
        return total / 1_000_000


@cache
def price_table() -> PriceTable:
    """The table that ships with this version."""
    return msgspec.json.decode(files(__package__).joinpath("prices.json").read_bytes(), type=PriceTable)
