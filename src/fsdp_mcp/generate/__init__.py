"""Generates complete training code and proves it on CPU Gloo."""
