"""The experiment file, checked strictly, and the plan made from it."""
