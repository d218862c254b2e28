"""The index: a SQLite cache over all batches of a results root. Delete it and it comes back."""
