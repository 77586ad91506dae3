"""What runs in the target interpreter: the supervisor and the ranks.

The target may be an older Python than ours and has neither our package nor pydantic: the files here use the standard
library and torch only, and the syntax of Python 3.8, the oldest that torch 2.4 supports.
"""
