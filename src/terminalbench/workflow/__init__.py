"""Guarded workflows: steps that generate, guards that check, retries, escalation, and a trace of all of it."""
