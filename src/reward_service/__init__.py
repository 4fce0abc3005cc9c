"""Multimodal reward inference: one ``POST /score`` returns every requested reward."""

__version__ = "0.1.0"
