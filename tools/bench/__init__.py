"""Measures the budgets of the server, most of them as ratios against a bare server of the SDK in the same run."""
