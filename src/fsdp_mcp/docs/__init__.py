"""search_docs and read_doc: tokenise, rank with BM25, excerpt, fit to a token budget."""
