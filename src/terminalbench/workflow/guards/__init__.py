"""The built-in guards. A workflow file names them; another package adds its own by an entry point or "module:Class"."""
