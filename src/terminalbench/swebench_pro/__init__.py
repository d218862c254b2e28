"""SWE-Bench Pro: its rows, its instances as Harbor tasks, patches evaluated on them, and the files people know."""
