"""Places where Harbor processes run: `base` is the contract, `local` this machine, `ray_executor` a cluster."""
