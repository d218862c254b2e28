"""What people read: tables, charts and reports made from the index."""
