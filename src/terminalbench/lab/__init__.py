"""The public API: all that a person does at the bench, as functions that print nothing and return a value."""
