"""The balance of a ledger."""

from ledger.money import cents, written


def balance(lines):
    """The sum of the amounts of `lines`, as text with two decimals."""
    return written(sum(cents(line.partition("\t")[2]) for line in lines))
