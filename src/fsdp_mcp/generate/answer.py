"""Puts an answer together: checks the options, builds the files, proves them, writes them if asked to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fsdp_mcp import call
from fsdp_mcp.errors import BadArgument, EnvironmentProblem
from fsdp_mcp.generate.api_names import names_used
from fsdp_mcp.generate.code import answer_files, build_script
from fsdp_mcp.generate.launch import launch_lines
from fsdp_mcp.generate.proof import Prove, prove_script
from fsdp_mcp.generate.recipe import Options, Recipe
from fsdp_mcp.generate.registry import find_recipe
from fsdp_mcp.generate.remarks import common_caveats, common_choices
from fsdp_mcp.generate.result import TrainingCode
from fsdp_mcp.generate.rules import check
from fsdp_mcp.generate.versions import check_version, oldest
from fsdp_mcp.models import GeneratedFile, Receipt
from fsdp_mcp.target import find_target


def answer(asked: Options, *, output_dir: str | None, verify: bool, prove: Prove | None) -> TrainingCode:
    """Return the code for these options.

    Raises:
        BadArgument: options that do not go together, a missing folder, or a file that exists already.
        Forbidden: a folder that this caller may not use.
    """
    check(asked)
    options = replace(asked, project_dir=_project(asked.project_dir), torch_version=_torch_version(asked))
    recipe = find_recipe(options.strategy)
    script = build_script(recipe, options)
    names = api_names(recipe, options, script)
    check_version(names, options.torch_version)
    files = answer_files(recipe, options, script)
    folder = _free_folder(output_dir, files)
    receipt, reason = _receipt(script, files, options, prove if verify else None, verify=verify)
    if folder is not None:
        _write(folder, files)
    return TrainingCode(
        files=files,
        launch=launch_lines(options),
        explanation=(*recipe.explain(options), *common_choices(options)),
        caveats=(*recipe.caveats(options), *common_caveats(options), *reason),
        requires_torch=oldest(names),
        receipt=receipt,
        written_to=str(folder) if folder else None,
    )


def api_names(recipe: Recipe, options: Options, script: str) -> tuple[str, ...]:
    """Return the qualified names of all torch APIs that the script uses."""
    return (*names_used(script), *recipe.methods(options))


def _project(project_dir: str | None) -> str | None:
    """Return the absolute folder that the model is imported from."""
    if project_dir is None:
        return None
    folder = call.allowed_path(project_dir, argument="project_dir")
    if not folder.is_dir():
        raise BadArgument(f"project_dir: there is no folder {project_dir!r}. Give the folder that holds the package.")
    return str(folder)


def _torch_version(options: Options) -> str | None:
    """Return the torch to write for: the one asked for, else the installed one, else None for the newest."""
    if options.torch_version is not None:
        return options.torch_version
    try:
        return find_target().torch_version
    except EnvironmentProblem:
        return None


def _free_folder(output_dir: str | None, files: tuple[GeneratedFile, ...]) -> Path | None:
    """Return the folder to write to, in which none of the files exists yet."""
    if output_dir is None:
        return None
    folder = call.allowed_path(output_dir, argument="output_dir")
    if folder.exists() and not folder.is_dir():
        raise BadArgument(f"output_dir: {output_dir!r} is a file. Give a folder.")
    taken = [file.path for file in files if (folder / file.path).exists() or (folder / file.path).is_symlink()]
    if taken:
        raise BadArgument(f"output_dir: {output_dir!r} has a {taken[0]} already. Move it, or give another folder.")
    return folder


def _write(folder: Path, files: tuple[GeneratedFile, ...]) -> None:
    """Write the files; mode x refuses one that has appeared since it was looked for."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file in files:
            with (folder / file.path).open("x", encoding="utf-8", newline="\n") as stream:
                stream.write(file.content)
    except OSError as error:
        raise BadArgument(f"output_dir: {error}. Give a folder that can be written to.") from None


def _receipt(
    script: str, files: tuple[GeneratedFile, ...], options: Options, prove: Prove | None, *, verify: bool
) -> tuple[Receipt | None, tuple[str, ...]]:
    """Return the receipt, or None and the reason why there is none."""
    if not verify:
        return None, ("Not run, as verify=false says.",)
    if prove is None or not call.current().may_run:
        return None, ("Not run: this server does not run code. Start it with --allow-run, or use the stdio server.",)
    try:
        return prove_script(script, files, options, prove), ()
    except EnvironmentProblem as problem:
        return None, (f"Not run: {problem}",)
