"""A model reads the trials: answers to rubrics, each with quotes that are looked up in the trajectory."""
