"""The live view of a batch: a reader of its events, plan and index, in any terminal, at any time."""
