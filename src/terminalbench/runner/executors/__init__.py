"""Where Harbor processes run: `base` is the contract, `local` this machine."""
