"""The loop that runs while people sleep: iterations as batches, workers looked after, a report in the morning."""
