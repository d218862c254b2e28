"""The memory of the bench: lessons, their log, the check for leaks, and finding the right one for a task."""
