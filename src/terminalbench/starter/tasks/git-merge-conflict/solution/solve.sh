#!/bin/bash
set -eu
cd /app/shop
git config user.name "Sol Ution"
git config user.email sol@example.org
git checkout -q main
git merge --no-commit discounts || true
cat > pricing.py <<'PY'
"""Prices of order lines, in cents."""

RATES = {"CHF": 1.0, "EUR": 1.05, "JPY": 160.0}


def line(name, quantity, unit_cents, currency="CHF", discount=0):
    """One line of an invoice: `name xquantity amount currency`.

    `currency` is a key of RATES (else a KeyError); the amount is converted by its rate and rounded to whole cents.
    `discount` is a percentage off the amount, from 0 to 100; anything else is a ValueError. The line then ends
    with ` (-discount%)`.
    """
    if not 0 <= discount <= 100:
        raise ValueError("a discount is between 0 and 100")
    amount = round(quantity * unit_cents * (100 - discount) / 100 * RATES[currency])
    text = f"{name} x{quantity} {amount} {currency}"
    return f"{text} (-{discount}%)" if discount else text
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

    def test_discount(self):
        self.assertEqual(line("tea", 2, 250, discount=10), "tea x2 450 CHF (-10%)")

    def test_discount_out_of_range(self):
        with self.assertRaises(ValueError):
            line("tea", 2, 250, discount=101)


if __name__ == "__main__":
    unittest.main()
PY
printf '# Changes\n\n## Next\n\n- Japanese yen.\n- Currencies.\n- Discounts in percent.\n- Invoice lines.\n' > CHANGES.md
python3 -B -m unittest
git add -A
git commit -q -m "Merge branch 'discounts'"
