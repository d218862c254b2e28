"""The balance of a ledger."""


def balance(lines):
    """The sum of the amounts of `lines`, as text with two decimals."""
    total = 0.0
    for line in lines:
        _, _, amount = line.partition("\t")
        total += float(amount)
    return str(total) if total else "0.00"
