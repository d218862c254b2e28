"""Chat models for judges, guards and reflection: one question, one checked answer, what it cost."""
