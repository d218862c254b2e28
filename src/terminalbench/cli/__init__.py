"""The command line: thin commands that parse, call one function and return its exit code."""
