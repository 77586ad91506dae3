"""Models as a user's project has them."""
