"""Images of registries and archives, without a daemon: names, the registry protocol, the store and what is in it."""
