"""What maintainers run: evaluation and measurement."""
