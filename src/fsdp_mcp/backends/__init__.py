"""recommend_backend: which communication back end suits an accelerator and a network, and how to start it."""

from fsdp_mcp.backends.advice import BackendAdvice
from fsdp_mcp.backends.recommend import recommend_backend

__all__ = ["BackendAdvice", "recommend_backend"]
