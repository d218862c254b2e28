"""Everything that holds trials back or ends them: budget, deadline, rate limits, orders, hangs."""
