"""From Harbor's job folder to `Trial` records: reading only."""
