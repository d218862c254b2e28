#!/bin/bash
# Builds /app/shop: two branches that changed the same function. Dates and names are fixed.
set -eu
export HOME=/nonexistent GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
umask 022
git -c init.defaultBranch=main init -q --object-format=sha1 /app/shop
cd /app/shop
tick=1710000000
commit() {
    tick=$((tick + 600))
    git add -A
    GIT_AUTHOR_DATE="$tick +0000" GIT_COMMITTER_DATE="$tick +0000" \
        git -c user.name="Ada Example" -c user.email=ada@example.org commit -q "$@"
}

cat > pricing.py <<'PY'
"""Prices of order lines, in cents."""


def line(name, quantity, unit_cents):
    """One line of an invoice: `name xquantity amount`."""
    amount = quantity * unit_cents
    return f"{name} x{quantity} {amount}"
PY
cat > test_pricing.py <<'PY'
import unittest

from pricing import line


class Line(unittest.TestCase):
    def test_plain(self):
        self.assertEqual(line("tea", 3, 250), "tea x3 750")


if __name__ == "__main__":
    unittest.main()
PY
printf '# Changes\n\n## Next\n\n- Invoice lines.\n' > CHANGES.md
commit -m "Invoice lines"

git checkout -q -b discounts
cat > pricing.py <<'PY'
"""Prices of order lines, in cents."""


def line(name, quantity, unit_cents, discount=0):
    """One line of an invoice: `name xquantity amount`.

    `discount` is a percentage off the amount, from 0 to 100; anything else is a ValueError. The line then ends
    with ` (-discount%)`.
    """
    if not 0 <= discount <= 100:
        raise ValueError("a discount is between 0 and 100")
    amount = round(quantity * unit_cents * (100 - discount) / 100)
    text = f"{name} x{quantity} {amount}"
    return f"{text} (-{discount}%)" if discount else text
PY
cat > test_pricing.py <<'PY'
import unittest

from pricing import line


class Line(unittest.TestCase):
    def test_plain(self):
        self.assertEqual(line("tea", 3, 250), "tea x3 750")

    def test_discount(self):
        self.assertEqual(line("tea", 2, 250, discount=10), "tea x2 450 (-10%)")

    def test_discount_out_of_range(self):
        with self.assertRaises(ValueError):
            line("tea", 2, 250, discount=101)


if __name__ == "__main__":
    unittest.main()
PY
printf '# Changes\n\n## Next\n\n- Discounts in percent.\n- Invoice lines.\n' > CHANGES.md
commit -m "Discounts on a line"

git checkout -q main
cat > pricing.py <<'PY'
"""Prices of order lines, in cents."""

RATES = {"CHF": 1.0, "EUR": 1.05, "JPY": 160.0}


def line(name, quantity, unit_cents, currency="CHF"):
    """One line of an invoice: `name xquantity amount currency`.

    `currency` is a key of RATES (else a KeyError); the amount is converted by its rate and rounded to whole cents.
    """
    amount = round(quantity * unit_cents * RATES[currency])
    return f"{name} x{quantity} {amount} {currency}"
PY
cat > test_pricing.py <<'PY'
import unittest

from pricing import line


class Line(unittest.TestCase):
    def test_plain(self):
        self.assertEqual(line("tea", 3, 250), "tea x3 750 CHF")

    def test_currency(self):
        self.assertEqual(line("tea", 2, 250, currency="EUR"), "tea x2 525 EUR")

    def test_unknown_currency(self):
        with self.assertRaises(KeyError):
            line("tea", 2, 250, currency="XXX")


if __name__ == "__main__":
    unittest.main()
PY
printf '# Changes\n\n## Next\n\n- Currencies.\n- Invoice lines.\n' > CHANGES.md
commit -m "Currencies on a line"
printf '# Changes\n\n## Next\n\n- Japanese yen.\n- Currencies.\n- Invoice lines.\n' > CHANGES.md
commit -m "Mention the yen"
rm -rf .git/hooks
