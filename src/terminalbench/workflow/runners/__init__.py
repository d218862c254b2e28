"""How exactly one test file is run in a repository, and how its result is read."""
