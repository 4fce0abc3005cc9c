"""Calls to scarce compute, made fast and safe."""

__version__ = "0.1.0"
