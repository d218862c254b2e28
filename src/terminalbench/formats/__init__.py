"""Results that other tools wrote, as rows: one module a format, each of which recognises its files and reads them."""
