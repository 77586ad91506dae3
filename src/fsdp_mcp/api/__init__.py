"""The API of the target torch, read without importing it, and its history over the releases."""
