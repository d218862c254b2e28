"""Scripted model servers: real HTTP on 127.0.0.1, answers from a script, every request kept for the test to look at."""
