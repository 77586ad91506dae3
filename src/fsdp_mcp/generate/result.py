"""The answer of generate_training_code, and its text for a model."""

from __future__ import annotations

from pydantic import Field

from fsdp_mcp.generate.recipe import Choice
from fsdp_mcp.models import GeneratedFile, Receipt, Result


class TrainingCode(Result):
    """Files that train, how to start them, why they are as they are, and the proof that they ran."""

    files: tuple[GeneratedFile, ...] = Field(description="The entry point first")
    launch: tuple[str, ...] = Field(description="Shell lines, in order")
    explanation: tuple[Choice, ...]
    caveats: tuple[str, ...]
    requires_torch: str = Field(description="Oldest release with every API used")
    receipt: Receipt | None = Field(description="Null when nothing was run")
    written_to: str | None = Field(default=None, description="Folder that the files were written to")

    @property
    def negative(self) -> bool:
        """A failed proof is a negative answer."""
        return self.receipt is not None and not self.receipt.ok

    def render(self) -> str:
        """Return the proof in a line, the files, how to start them, the reasons and what to watch for."""
        lines = [_proof_line(self.receipt), f"Needs torch {self.requires_torch} or newer.", ""]
        lines += _listed_files(self.files, self.written_to)
        if self.launch:
            lines += ["Launch:", _fenced("\n".join(self.launch), "sh"), ""]
        lines += ["Choices:", *(f"- {choice.choice}: {choice.why}" for choice in self.explanation), ""]
        lines += ["Watch for:", *(f"- {caveat}" for caveat in self.caveats)]
        return "\n".join(lines).rstrip() + "\n"


def _proof_line(receipt: Receipt | None) -> str:
    """Say in a line whether the code ran, where and with which losses."""
    if receipt is None:
        return "Not run; see the end for why."
    ranks = f"{receipt.world_size} Gloo ranks in {receipt.seconds:.1f} s with torch {receipt.torch_version}"
    if not receipt.ok:
        return f"**The proof failed** on {ranks}: {receipt.error}"
    losses = f"loss {receipt.losses[0]:.2f} -> {receipt.losses[-1]:.2f}"
    return f"Proven on {ranks}, {losses}. Changed for the proof: {'; '.join(receipt.differences)}."


def _listed_files(files: tuple[GeneratedFile, ...], written_to: str | None) -> list[str]:
    """Return the files in full, or where they are when they were written."""
    if written_to is not None:
        return [f"Written to {written_to}: {', '.join(file.path for file in files)}", ""]
    listed: list[str] = []
    for file in files:
        language = "python" if file.path.endswith(".py") else "sh"
        listed += [f"### {file.path}", _fenced(file.content.rstrip("\n"), language), ""]
    return listed


def _fenced(text: str, language: str) -> str:
    return f"```{language}\n{text}\n```"
