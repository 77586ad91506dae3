"""An MCP server that is expert in PyTorch FSDP and torch.distributed."""

__version__ = "0.1.0"
