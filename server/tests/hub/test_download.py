"""The downloader as a process against a local hub: what it fetches, resumes, refuses and says."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from headrace.hub.selection import SelectionError, small_files, weight_files
from hub_server import COMMIT, Hub

MODEL = "org/model"


def bytes_of(size, seed):
    return random.Random(seed).randbytes(size)


def sharded():
    index = {
        "weight_map": {
            "a": "model-00001-of-00002.safetensors",
            "b": "model-00002-of-00002.safetensors",
        }
    }
    return {
        "config.json": b"{}",
        "tokenizer.json": b'{"t": 1}',
        "generation_config.json": b"{}",
        "chat_template.jinja": b"{{ x }}",
        "README.md": b"words",
        "model.safetensors.index.json": json.dumps(index).encode(),
        "model-00001-of-00002.safetensors": bytes_of(300_000, 1),
        "model-00002-of-00002.safetensors": bytes_of(400_000, 2),
        "consolidated.safetensors": bytes_of(1000, 3),
        "pytorch_model.bin": bytes_of(1000, 4),
        "onnx/model.safetensors": bytes_of(1000, 5),
    }


@pytest.fixture
def hub():
    hub = Hub()
    hub.repositories[MODEL] = sharded()
    yield hub
    hub.close()


def download(cache, endpoint, model=MODEL, **variables):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HF_")}
    environment |= {"HF_ENDPOINT": endpoint, "HF_HOME": str(cache)}
    environment |= {"HF_HUB_DISABLE_XET": "1", **variables}
    result = subprocess.run(
        [sys.executable, "-m", "headrace.hub.download", "--model-id", model, "--print-json"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return result.returncode, [json.loads(x) for x in result.stdout.splitlines()], result.stderr


def test_fetches_what_is_needed_then_needs_no_network(hub, tmp_path):
    code, lines, errors = download(tmp_path, hub.url)
    assert (code, errors) == (0, "")
    last = lines[-1]
    assert last["revision"] == COMMIT
    assert last["pipeline_tag"] == "text-generation"
    snapshot = Path(last["path"])
    names = {str(p.relative_to(snapshot)) for p in snapshot.rglob("*") if p.is_file()}
    unwanted = {
        "README.md",
        "consolidated.safetensors",
        "pytorch_model.bin",
        "onnx/model.safetensors",
    }
    assert names == set(sharded()) - unwanted
    for name in names:
        assert (snapshot / name).read_bytes() == sharded()[name]
    shard = "model-00002-of-00002.safetensors"
    assert {"stage": "download", "file": shard, "done": 400_000, "total": 400_000} in lines
    # All small files are told of as there before anything of a weight is.
    configured = lines.index({"configured": str(snapshot)})
    begun = [n for n, line in enumerate(lines) if str(line.get("file")).endswith(".safetensors")]
    small = [n for n, line in enumerate(lines) if line.get("file") == "config.json"]
    assert max(small) < configured < min(begun)
    hub.close()
    for variables in ({}, {"HF_HUB_OFFLINE": "1"}):
        code, lines, errors = download(tmp_path, hub.url, **variables)
        assert (code, errors) == (0, "")
        assert lines == [{"path": str(snapshot), "revision": COMMIT, "pipeline_tag": None}]


@pytest.mark.parametrize("resets", [False, True])
def test_a_connection_that_breaks_inside_a_shard_is_resumed(hub, tmp_path, resets):
    # huggingface_hub writes chunks of 10 MB: what is whole when the connection breaks is kept.
    shard = "model-00001-of-00002.safetensors"
    data = bytes_of(36_000_000, 6)
    hub.repositories[MODEL][shard] = data
    hub.cut[shard] = [12_000_000, 33_000_000]
    hub.resets = resets
    code, lines, _ = download(tmp_path, hub.url)
    assert code == 0
    assert (Path(lines[-1]["path"]) / shard).read_bytes() == data
    assert hub.cut[shard] == []
    ranges = [r for method, path, r in hub.requests if method == "GET" and shard in path and r]
    if not resets:
        # Asked again only for the rest. (A reset makes huggingface_hub begin again.)
        starts = [int(r.removeprefix("bytes=").removesuffix("-")) for r in ranges]
        assert len(starts) == 2
        assert 0 < starts[0] < starts[1]


def test_an_unfinished_snapshot_is_finished_and_only_the_rest_is_fetched(hub, tmp_path):
    code, lines, _ = download(tmp_path, hub.url)
    shard = Path(lines[-1]["path"]) / "model-00002-of-00002.safetensors"
    shard.resolve().unlink()
    shard.unlink()
    hub.requests.clear()
    code, lines, _ = download(tmp_path, hub.url)
    assert code == 0
    assert shard.read_bytes() == sharded()[shard.name]
    fetched = {
        path.rsplit("/", 1)[1]
        for method, path, _ in hub.requests
        if method == "GET" and "resolve" in path
    }
    assert fetched == {shard.name}


def one_line(errors):
    assert errors.count("\n") == 1
    assert "Traceback" not in errors
    return errors


def test_what_cannot_be_had_is_one_line(hub, tmp_path):
    hub.repositories["org/gated"] = sharded()
    hub.gated.add("org/gated")
    hub.repositories["org/pickled"] = {"config.json": b"{}", "pytorch_model.bin": b"x"}
    for model, words in (
        ("org/none", "org/none is not a model on http://127.0.0.1"),
        ("org/gated", "gated"),
        ("org/pickled", "pytorch_model.bin"),
        ("a/b/c", "neither a local path nor a valid model id"),
    ):
        code, lines, errors = download(tmp_path, hub.url, model)
        assert code == 1
        assert words in one_line(errors)
        assert not any("path" in line for line in lines)
    assert not list(tmp_path.rglob("*.bin"))


def test_an_unreachable_hub_is_one_line(tmp_path):
    code, _, errors = download(tmp_path, "http://127.0.0.1:9")
    assert code == 1
    assert "http://127.0.0.1:9 cannot be reached for org/model" in one_line(errors)


def test_offline_without_a_cache_is_one_line(tmp_path):
    code, _, errors = download(tmp_path, "http://127.0.0.1:9", HF_HUB_OFFLINE="1")
    assert code == 1
    assert "HF_HUB_OFFLINE" in one_line(errors)


def test_a_full_disk_is_one_line(hub, tmp_path):
    blocked = tmp_path / "hub"
    blocked.mkdir()
    script = (
        "import sys, errno\n"
        "from headrace.hub import download\n"
        "def full(*a, **k): raise OSError(errno.ENOSPC, 'No space left on device')\n"
        "download.hf_hub_download = full\n"
        "sys.exit(download.main(['--model-id', 'org/model', '--cache-dir', sys.argv[1]]))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", script, str(blocked)],
        env={**os.environ, "HF_ENDPOINT": hub.url},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 1
    assert "no space left for org/model" in one_line(result.stderr)


def refuse():
    raise AssertionError("there is no index")


def test_selection():
    assert weight_files(["model.safetensors", "x.gguf", "adapter.safetensors"], refuse) == [
        "model.safetensors"
    ]
    parts = [f"m-0000{n}-of-00003.gguf" for n in (1, 2, 3)]
    assert weight_files(["README.md", *parts], refuse) == parts
    assert weight_files(["q/" + part for part in parts], refuse) == ["q/" + part for part in parts]
    assert small_files(["config.json", "x/config.json", "additional_chat_templates/rag.jinja"]) == [
        "additional_chat_templates/rag.jinja",
        "config.json",
    ]


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["a-Q4_0.gguf", "a-Q8_0.gguf"], "several GGUF models"),
        (["m-00001-of-00003.gguf", "m-00003-of-00003.gguf"], "2 of 3"),
        (["model.pt"], "pickled"),
        (["README.md"], "no safetensors or GGUF"),
    ],
)
def test_refused_selections(names, words):
    with pytest.raises(SelectionError, match=words):
        weight_files(names, refuse)
