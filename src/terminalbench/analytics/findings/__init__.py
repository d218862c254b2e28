"""What analyzers find out about one trial, and the cache their findings are kept in."""
