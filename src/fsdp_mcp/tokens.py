"""Estimates tokens and fits text to a budget of them."""

from __future__ import annotations

# o200k_base has 3.3 bytes a token on code, 4.0 on Markdown, 3.5 on Chinese: 3 is on the safe side.
_BYTES_PER_TOKEN = 3


def estimate_tokens(text: str) -> int:
    """Return an upper estimate of the tokens in `text`: its UTF-8 bytes divided by three, rounded up."""
    return -(-len(text.encode("utf-8")) // _BYTES_PER_TOKEN)


def fit(text: str, *, max_tokens: int) -> int:
    """Return how many characters of `text` fit into `max_tokens`, ended at a paragraph, line or word if one is near."""
    if estimate_tokens(text) <= max_tokens:
        return len(text)
    head = text.encode("utf-8")[: max_tokens * _BYTES_PER_TOKEN].decode("utf-8", errors="ignore")
    for separator in ("\n\n", "\n", " "):
        end = head.rfind(separator)
        if end > len(head) // 2:
            return end + len(separator)
    return max(len(head), 1)
