"""Tasks with services besides the agent's: what their compose file says, and the sandboxes that are made of it."""
