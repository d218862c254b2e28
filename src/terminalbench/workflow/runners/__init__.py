"""Runners of exactly one test file in a repository, and how its result is read."""
