"""Who proposes variants: one protocol, and its members."""
