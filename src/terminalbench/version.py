"""The version of this package: beside the API it would tie every module that tells it to the package root."""

__version__ = "0.1.0"
