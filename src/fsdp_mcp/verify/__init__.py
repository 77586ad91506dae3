"""Runs code on local CPU Gloo ranks: `run.py` holds the tool, `rank_side/` what runs in the target interpreter."""
