"""Finding, hiding and scrubbing secret values. It takes values, and knows no plan, no batch and no Harbor."""
