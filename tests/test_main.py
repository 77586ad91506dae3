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
        (("run-on-gloo", "-", "--compare", "nothing.py"), 2, "compare: there is no file 'nothing.py'"),
        (("run-on-gloo", "-", "--compare", ""), 2, "compare: got no text"),
        (("run-on-gloo", "-", "--compare", "def f(:\n"), 2, "compare: the code does not parse"),
        (
            ("run-on-gloo", "-", "--simulate", "many"),
            2,
            "expected a whole number or an object of name: a whole number",
        ),
        (("diagnose-log",), 2, "Name the logs"),
        (("diagnose-log", ""), 2, "path: got an empty text"),
        (("diagnose-log", "/dev/null"), 2, "there is no log at"),
        (("diagnose-log", "-", "--torch-version", "1.9"), 2, "no known failures for torch 1.9"),
        (("read-doc", "fsdp://failures/rank-raise"), 2, "Closest: fsdp://failures/rank-raised"),
        (("lookup-api", "fully_shard", "--python", "/does/not/exist"), 3, "--python: no interpreter at"),
    ],
)
def test_an_error_has_its_status_and_tells_the_next_step_on_stderr(capsys, monkeypatch, arguments, status, message):
    stdin = io.TextIOWrapper(io.BufferedReader(io.BytesIO(b"print(1)")), encoding="utf-8")
    monkeypatch.setattr(sys, "stdin", stdin)
    assert (main(arguments), message in capsys.readouterr().err) == (status, True)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["lookup-api", "fully_shard", "--detial", "full"], "unknown argument --detial. Did you mean '--detail'?"),
        (["run-on-gloo", "train.py", "--steps", "3"], "See `fsdp-mcp run-on-gloo --help`."),
        (["run-on-gloo", "train.py", "--arguments", "--steps=3"], "run-on-gloo train.py -- --steps 3"),
        (["diagnose_log", "job.log"], "unknown command 'diagnose_log'. Did you mean 'diagnose-log'?"),
        (["search-docs"], "query. See `fsdp-mcp search-docs --help`."),
    ],
)
def test_wrong_usage_is_one_line_that_names_the_next_step(capsys, arguments, told):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert told in capsys.readouterr().err


@pytest.mark.ranks
def test_what_follows_two_dashes_is_given_to_the_script(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("import sys\nprint(sys.argv[1:])"))
    _, out, _ = run(capsys, "run-on-gloo", "-", "--world-size", "1", "--", "--steps", "3")
    assert "['--steps', '3']" in out


def test_a_path_and_files_are_diagnosed_together(capsys, tmp_path):
    (tmp_path / "quiet.log").write_text("step 1\n", encoding="utf-8")
    (tmp_path / "loud.log").write_text(
        "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 2000\n", encoding="utf-8"
    )
    status, out, _ = run(capsys, "diagnose-log", str(tmp_path / "quiet.log"), "--path", str(tmp_path / "loud.log"))
    assert (status, "nccl-duplicate-gpu" in out) == (1, True)


def test_a_kind_that_has_no_entries_says_how_to_get_some(capsys):
    assert "fsdp-mcp docs fetch" in run(capsys, "search-docs", "all_reduce", "--kind", "official")[1]


def test_an_empty_log_is_refused(capsys, tmp_path):
    (tmp_path / "job.log").touch()
    assert run(capsys, "diagnose-log", str(tmp_path / "job.log"))[::2] == (
        2,
        "fsdp-mcp: The log is empty. Give the files that the ranks' stderr went to (torchrun: --log-dir).\n",
    )


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
