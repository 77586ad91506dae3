"""Names the cause behind a failure log: `diagnose_log.py` holds the tool, `docs_corpus/failures/` what it knows."""
