"""From Harbor's job folder to `Trial` records: reading only."""

READER = 14
"""The version of the rules in this package. The index keeps it beside each trial, and reads one of another again.

Raise it with each change of the rules; `tests/harbor/test_reader_version.py` knows of one.
"""

RESULT = "result.json"
"""The file that Harbor writes when a trial has ended. Named here: who only looks for trials reads none of them."""
