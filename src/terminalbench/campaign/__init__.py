"""What nights, trainings and SWE-Bench Pro experiments share: folder, batches by labels, gate, reports."""
