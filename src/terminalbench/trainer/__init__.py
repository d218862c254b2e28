"""Better profiles, proven better: the gym, plans, variants and their lineage, the gate, the nights."""
