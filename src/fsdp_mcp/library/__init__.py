"""The library: official pages fetched on request, and the user's own documents, indexed beside the guides."""
