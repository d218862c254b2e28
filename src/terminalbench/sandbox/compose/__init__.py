"""Tasks with services besides the agent's: what their compose file says, and the sandboxes that are made of it."""

COMPOSE = "docker-compose.yaml"
"""The file by which a task has further services; by another name it is one of the task's own."""
MAIN = "main"
"""The service that the agent works in."""
