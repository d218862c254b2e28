SELECT id, customer, placed_at, cents
FROM orders
WHERE warehouse = :warehouse AND status = :status AND placed_at < :before
ORDER BY placed_at DESC, id DESC
LIMIT 20
