"""Everything that touches Harbor. Importing this package does not import Harbor."""
