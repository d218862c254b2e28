#!/bin/bash
set -eu
cat > /app/report.sql <<'SQL'
WITH counted AS (
    SELECT o.id, o.customer_id, o.shipping_cents,
           strftime('%Y-%m', o.placed_at) AS month,
           CASE WHEN trim(coalesce(c.region, '')) = '' THEN 'unknown' ELSE c.region END AS region
    FROM orders o JOIN customers c ON c.id = o.customer_id
    WHERE o.status <> 'cancelled' AND o.placed_at >= '2024-01-01' AND o.placed_at < '2025-01-01'
),
item_sums AS (
    SELECT order_id, sum(quantity * unit_cents) AS cents FROM order_items GROUP BY order_id
),
ranked AS (
    SELECT t.month, t.region, p.name,
           row_number() OVER (PARTITION BY t.month, t.region ORDER BY sum(i.quantity) DESC, p.name) AS place
    FROM counted t JOIN order_items i ON i.order_id = t.id JOIN products p ON p.id = i.product_id
    GROUP BY t.month, t.region, p.id
)
SELECT t.month, t.region, count(*) AS orders, count(DISTINCT t.customer_id) AS customers,
       sum(t.shipping_cents + coalesce(s.cents, 0)) AS revenue_cents,
       (SELECT r.name FROM ranked r WHERE r.month = t.month AND r.region = t.region AND r.place = 1) AS best_product
FROM counted t LEFT JOIN item_sums s ON s.order_id = t.id
GROUP BY t.month, t.region
ORDER BY t.month, t.region;
SQL
