"""A lab bench for coding agents: one TOML file, one Harbor job per profile, numbers you can trust."""

__version__ = "0.1.0"
