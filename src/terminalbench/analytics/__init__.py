"""What the trials say: findings per trial, comparisons between profiles, and why they differ."""
