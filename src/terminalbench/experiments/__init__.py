"""What to run: the experiment file, checked strictly, and the plan made from it."""
