CREATE TABLE orders (
    id INTEGER PRIMARY KEY,
    warehouse TEXT NOT NULL,
    status TEXT NOT NULL,
    placed_at INTEGER NOT NULL,
    customer TEXT NOT NULL,
    cents INTEGER NOT NULL
);
CREATE INDEX orders_by_customer ON orders (customer);
