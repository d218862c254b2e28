"""Events folded once into the state of a batch: what runs, waits and ended, spend, time left, alerts, processes."""
