"""Where Harbor processes run: `base` is the contract, `local` this machine, `ray_executor` the nodes of a cluster."""
