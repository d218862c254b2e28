"""Everything that is written to disk and read again, one type each.

`None` means unknown in every field of every record: never zero, never false.
"""
