"""Agents that Harbor loads by import path; import the module you need, not this package."""
