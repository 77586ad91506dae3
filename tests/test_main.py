"""The command line, called as a function and once as a process."""

import io
import json
import subprocess
import sys

import pytest

from fsdp_mcp import __version__, toolbox
from fsdp_mcp.__main__ import main
from fsdp_mcp.library import shelf


def run(capsys, *arguments):
    status = main(arguments)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_a_tool_prints_its_text(capsys):
    status, out, _ = run(capsys, "lookup-api", "fully_shard")
    assert status == 0
    assert "reshard_after_forward" in out


def test_json_is_exactly_the_structured_result(capsys):
    arguments = ("recommend-backend", "--accelerator", "cuda", "--interconnect", "infiniband", "--nodes", "4", "--json")
    status, out, _ = run(capsys, *arguments)
    expected = toolbox.find_tool("recommend_backend").call(
        {"accelerator": "cuda", "interconnect": "infiniband", "nodes": 4}
    )
    assert (status, json.loads(out)) == (0, expected.model_dump(mode="json"))


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("lookup-api", "fully_sharded_model"), 2, "No API named 'fully_sharded_model' in torch"),
        (("generate-training-code", "fsdp3", "--no-verify"), 2, "strategy: got 'fsdp3', expected one of"),
        (("recommend-backend", "--nodes", "0"), 2, "nodes: got 0, expected at least 1"),
        (("run-on-gloo", "/does/not/exist.py"), 2, "cannot be read"),
        (("run-on-gloo",), 2, "exactly one of code (the text) and path"),
        (("run-on-gloo", "-", "--file", "a.py"), 2, "expected NAME=PATH"),
        (("lookup-api", "fully_shard", "--python", "/does/not/exist"), 3, "--python: no interpreter at"),
    ],
)
def test_an_error_has_its_status_and_tells_the_next_step_on_stderr(capsys, monkeypatch, arguments, status, message):
    monkeypatch.setattr(sys, "stdin", io.StringIO("print(1)"))
    assert (main(arguments), message in capsys.readouterr().err) == (status, True)


def test_an_unknown_flag_is_refused_by_its_name(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["lookup-api", "fully_shard", "--detial", "full"])
    assert caught.value.code == 2
    assert "--detial" in capsys.readouterr().err


@pytest.mark.parametrize("tool", toolbox.TOOLS, ids=lambda tool: tool.name)
def test_every_tool_is_a_command_whose_help_names_every_argument(capsys, tool):
    with pytest.raises(SystemExit):
        main([tool.name.replace("_", "-"), "--help"])
    text = capsys.readouterr().out
    for name in tool.arguments.model_fields:
        assert name == "files" or name in text or f"--{name.replace('_', '-')}" in text


def test_help_lists_every_command(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    commands = ["serve", "demo", "index", "doctor", "cache", *(tool.name.replace("_", "-") for tool in toolbox.TOOLS)]
    assert [command for command in commands if command not in text] == []


def test_without_a_command_the_help_is_shown(capsys):
    status, out, _ = run(capsys)
    assert status == 2
    assert "fsdp-mcp demo" in out


def test_literals_on_the_command_line_mean_what_they_say(capsys):
    asked = ("--reshard-after-forward", "false", "--clip-grad-norm", "none", "--no-verify", "--json")
    status, out, _ = run(capsys, "generate-training-code", "fsdp2", *asked)
    script = json.loads(out)["files"][0]["content"]
    assert status == 0
    assert "reshard_after_forward=False" in script
    assert "clip_grad" not in script


@pytest.mark.ranks
def test_a_run_that_fails_is_a_negative_answer(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("raise ValueError('broken on purpose')"))
    status, out, _ = run(capsys, "run-on-gloo", "-", "--world-size", "1", "--json")
    report = json.loads(out)
    assert (status, report["ok"], report["first_failure"]["line"]) == (1, False, 1)


@pytest.mark.ranks
def test_a_script_is_run_where_it_lies_beside_the_modules_it_imports(capsys, tmp_path):
    (tmp_path / "settings_of_run.py").write_text("STEPS = 3\n", encoding="utf-8")
    script = tmp_path / "mine.py"
    script.write_text("import settings_of_run\nraise ValueError(settings_of_run.STEPS)\n", encoding="utf-8")
    status, out, _ = run(capsys, "run-on-gloo", str(script), "--world-size", "1", "--json")
    failure = json.loads(out)["first_failure"]
    assert (status, failure["file"], failure["line"], failure["message"]) == (1, "mine.py", 2, "ValueError: 3")


def test_the_doctor_says_which_torch_and_why(capsys):
    status, out, _ = run(capsys, "doctor")
    assert status == 0
    assert "gloo" in out
    assert "chosen by" in out


def test_the_cache_command_prints_the_folder_in_use(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("FSDP_MCP_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "cache" / "old").mkdir(parents=True)
    assert run(capsys, "cache", "path")[1].strip() == str(tmp_path / "cache")


def test_clearing_the_cache_keeps_what_docs_was_given_unless_all_is_asked_for(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("FSDP_MCP_CACHE_DIR", str(tmp_path / "cache"))
    shelf.put_collection(shelf.UserCollection(name="team", origin=str(tmp_path), added="2026-01-01"))
    (tmp_path / "cache" / "old").mkdir()
    status, out, _ = run(capsys, "cache", "clear")
    assert (status, (tmp_path / "cache" / "old").exists()) == (0, False)
    assert "Kept team; --all removes" in out
    assert [found.name for found in shelf.user_collections()] == ["team"]
    assert run(capsys, "cache", "clear", "--all")[0] == 0
    assert not (tmp_path / "cache").exists()


def test_a_one_shot_command_does_not_import_the_protocol():
    call = "from fsdp_mcp.__main__ import main\nmain(['lookup-api', 'fully_shard'])"
    code = f"import sys\n{call}\nprint('mcp' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True)
    assert done.stdout.splitlines()[-1] == "False"


def test_the_installed_command_tells_its_version():
    done = subprocess.run(
        [sys.executable, "-m", "fsdp_mcp", "--version"], capture_output=True, encoding="utf-8", check=True
    )
    assert done.stdout.strip() == f"fsdp-mcp {__version__}"
