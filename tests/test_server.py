"""The server as a client sees it, in memory, for both eras of the protocol."""

import json
import threading
from pathlib import Path

import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import PromptReference, ResourceTemplateReference

from fsdp_mcp import prompts, toolbox
from fsdp_mcp.server import Settings, build_server

pytestmark = pytest.mark.anyio

SNAPSHOT = Path(__file__).parent / "golden" / "tools.json"
BOTH_ERAS = pytest.mark.parametrize("era", ["legacy", "auto"])
TOKENS_OF_ALL_TOOLS = 3_500
EVENTS = (threading.Event(), threading.Event())
CALLS = {
    "search_docs": {"query": "clip gradients with fully_shard"},
    "read_doc": {"uri": "fsdp://guides/fsdp2"},
    "lookup_api": {"name": "fully_shard"},
    "recommend_backend": {"accelerator": "cuda", "interconnect": "infiniband", "nodes": 4},
    "generate_training_code": {"strategy": "fsdp2", "verify": False},
    "diagnose_log": {"log": "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 2000"},
}


def connect(era: str, **settings) -> Client:
    return Client(build_server(Settings(**settings)), mode=era)


def text_of(result) -> str:
    return "\n".join(block.text for block in result.content)


@BOTH_ERAS
async def test_the_tool_list_is_the_one_in_the_snapshot(era):
    async with connect(era) as client:
        tools = [
            tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in (await client.list_tools()).tools
        ]
    assert tools == json.loads(SNAPSHOT.read_text(encoding="utf-8")), (
        "run `python -m tools.snapshot` after a wanted change"
    )


@pytest.mark.filterwarnings("ignore:open_binary is deprecated:DeprecationWarning")  # bpe-openai 0.1 reads its data so.
async def test_the_tool_list_stays_within_its_tokens():
    from bpe_openai import get_encoding

    async with connect("legacy") as client:
        tools = (await client.list_tools()).tools
    seen_by_a_model = [[tool.name, tool.description, tool.input_schema] for tool in tools]
    assert len(get_encoding("o200k_base").encode(json.dumps(seen_by_a_model))) < TOKENS_OF_ALL_TOOLS
    assert all(len(tool.description) < 2_000 for tool in tools)


def test_the_instructions_fit_where_clients_cut_them():
    assert len(prompts.INSTRUCTIONS) < 2_000


@BOTH_ERAS
@pytest.mark.parametrize("tool", CALLS)
async def test_a_tool_answers_with_text_alone(era, tool):
    async with connect(era) as client:
        result = await client.call_tool(tool, CALLS[tool])
    assert (result.is_error, result.structured_content) == (False, None)
    assert text_of(result)


@pytest.mark.parametrize("tool", CALLS)
async def test_with_structured_the_same_text_comes_with_fields(tool):
    async with connect("legacy") as plain, connect("legacy", structured=True) as structured:
        await structured.list_tools()  # The client then checks results against the output schemas.
        expected = await plain.call_tool(tool, CALLS[tool])
        result = await structured.call_tool(tool, CALLS[tool])
    assert text_of(result) == text_of(expected)
    assert result.structured_content.keys() == toolbox.find_tool(tool).output_schema()["properties"].keys()


@BOTH_ERAS
async def test_a_bad_argument_is_an_error_that_tells_the_next_step(era):
    async with connect(era) as client:
        result = await client.call_tool("lookup_api", {"name": "fully_shard", "detial": "full"})
    assert result.is_error
    assert text_of(result).startswith("Unknown argument 'detial' for lookup_api. Did you mean 'detail'?")


@BOTH_ERAS
async def test_an_unknown_tool_is_an_error_that_lists_the_tools(era):
    async with connect(era) as client:
        result = await client.call_tool("look_up_api", {})
    assert result.is_error
    assert "Did you mean 'lookup_api'?" in text_of(result)


@BOTH_ERAS
async def test_where_code_may_not_run_the_runner_is_not_offered_and_generated_code_has_no_receipt(era):
    async with connect(era, remote=True, may_run=False, structured=True) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        refused = await client.call_tool("run_on_gloo", {"code": "print(1)"})
        generated = await client.call_tool("generate_training_code", {"strategy": "fsdp2"})
    assert "run_on_gloo" not in names
    assert "--allow-run" in text_of(refused)
    assert generated.structured_content["receipt"] is None
    assert any("--allow-run" in caveat for caveat in generated.structured_content["caveats"])


async def test_a_remote_caller_may_not_name_paths():
    async with connect("legacy", remote=True) as client:
        result = await client.call_tool("run_on_gloo", {"path": "train.py"})
    assert result.is_error
    assert "paths are refused over HTTP" in text_of(result)


@BOTH_ERAS
async def test_guides_and_apis_are_resources(era):
    async with connect(era) as client:
        listed = {str(resource.uri) for resource in (await client.list_resources()).resources}
        templates = {t.uri_template for t in (await client.list_resource_templates()).resource_templates}
        guide = await client.read_resource("fsdp://guides/fsdp2")
        entry = await client.read_resource("fsdp://api/torch.distributed.fsdp.fully_shard")
    assert listed == {f"fsdp://guides/{guide.stem}" for guide in toolbox.guides()}
    assert templates == {"fsdp://guides/{name}", "fsdp://api/{symbol}", "fsdp://failures/{id}"}
    assert "fully_shard" in guide.contents[0].text
    assert "reshard_after_forward" in entry.contents[0].text


@BOTH_ERAS
async def test_an_unknown_resource_is_refused_with_the_closest(era):
    async with connect(era) as client:
        with pytest.raises(MCPError, match="fsdp2"):
            await client.read_resource("fsdp://guides/fsdp22")


@BOTH_ERAS
async def test_both_templates_complete(era):
    async with connect(era) as client:
        guides = await client.complete(
            ResourceTemplateReference(uri="fsdp://guides/{name}"), {"name": "name", "value": "fsdp"}
        )
        names = await client.complete(
            ResourceTemplateReference(uri="fsdp://api/{symbol}"), {"name": "symbol", "value": "fully_sh"}
        )
        nothing = await client.complete(PromptReference(name="debug_hang"), {"name": "symptom", "value": "x"})
    assert "fsdp2" in guides.completion.values
    assert "torch.distributed.fsdp.fully_shard" in names.completion.values
    assert nothing.completion.values == []


@BOTH_ERAS
@pytest.mark.parametrize("prompt", prompts.PROMPTS, ids=lambda prompt: prompt.name)
async def test_a_prompt_names_only_tools_that_exist(era, prompt):
    given = {name: f"<{name}>" for name, _, required in prompt.arguments if required}
    async with connect(era) as client:
        listed = [listed.name for listed in (await client.list_prompts()).prompts]
        text = (await client.get_prompt(prompt.name, given)).messages[0].content.text
    assert prompt.name in listed
    assert all(value in text for value in given.values())
    mentioned = {word.strip('.,:()"`') for word in text.replace("(", " ").split() if "_" in word}
    tools = {tool.name for tool in toolbox.TOOLS}
    assert mentioned & tools
    assert not {word for word in mentioned if word.startswith(("search_", "lookup_", "run_", "generate_"))} - tools


async def test_a_prompt_without_its_required_argument_is_refused():
    async with connect("legacy") as client:
        with pytest.raises(MCPError, match="symptom: required by debug_hang"):
            await client.get_prompt("debug_hang", {})


@BOTH_ERAS
async def test_cancelling_a_call_is_seen_by_what_it_started(era, monkeypatch):
    """A tool that waits until its caller is gone stands for a run: only the cancellation can end it."""
    import anyio

    started, seen = threading.Event(), threading.Event()
    monkeypatch.setattr(toolbox, "TOOLS", (toolbox.Tool("wait", f"{__name__}:wait_for_cancellation", "Wait"),))
    monkeypatch.setitem(globals(), "EVENTS", (started, seen))
    async with connect(era) as client:
        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "wait", {})
            await anyio.to_thread.run_sync(started.wait, 10)
            group.cancel_scope.cancel()
        assert await anyio.to_thread.run_sync(seen.wait, 10)


@BOTH_ERAS
async def test_progress_reaches_a_client_that_asks(era, monkeypatch):
    told = []

    async def tell(progress, total, message):
        told.append((progress, total, message))

    monkeypatch.setattr(toolbox, "TOOLS", (toolbox.Tool("walk", f"{__name__}:walk", "Walk"),))
    async with connect(era) as client:
        await client.call_tool("walk", {}, progress_callback=tell)
    assert told == [(1, 2, "half way")]


class Said(toolbox.Result):
    word: str

    def render(self) -> str:
        return self.word


def wait_for_cancellation() -> Said:
    """Wait until the caller is gone."""
    from fsdp_mcp import call

    EVENTS[0].set()
    for _ in range(10_000):
        if call.current().is_cancelled():
            EVENTS[1].set()
            return Said(word="gone")
        threading.Event().wait(0.002)
    return Said(word="never")


def walk() -> Said:
    """Walk half way and say so."""
    from fsdp_mcp import call

    call.report(1, 2, "half way")
    return Said(word="there")
