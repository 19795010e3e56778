"""Writes transformers.json, tiny_byte_fallback.json and tiny.gguf: what transformers and tokenizers say.

Run with the project's Python: python transformers_golden.py GGUF OUTPUT_FOLDER_FOR_TINY_GGUF

The demo model's vocabulary is read from its GGUF file and put into the pipeline that its family ships (individual
digits, then GPT-2's byte level). transformers' own GGUF loader ignores `tokenizer.ggml.pre`, so it is not used.
`tiny_byte_fallback.json` is a SentencePiece-like tokenizer trained on strings.json (once: training breaks ties at
random, so a file that is there is taken as it is); tiny.gguf holds the same as GGUF metadata, for llama_cpp_ids.mjs,
and is not kept.
"""

import json
import random
import sys
from pathlib import Path
from typing import Any

import gguf
import jinja2
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)
from transformers import PreTrainedTokenizerFast

HERE = Path(__file__).parent
TEXTS: list[str] = json.loads((HERE / "strings.json").read_text(encoding="ascii"))

PARTS = """{% for m in messages %}<|im_start|>{{ m.role }}
{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}{% endif %}{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
TOOLS = """{%- if tools is not none and tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- "# Tools\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(last=0, seen=false) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if not ns.seen and message.role == "user" %}
        {%- set ns.seen = true %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == "user" or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set content = message.content if message.content is string else '' %}
        {%- if '</think>' in content and loop.index0 < ns.last %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {{- '<|im_start|>assistant\\n' }}{% generation %}{{ content }}
        {%- for call in message.tool_calls or [] %}
            {%- if call.function %}{% set call = call.function %}{% endif %}
            {{- '\\n<tool_call>\\n{"name": "' + call.name + '", "arguments": ' }}
            {%- if call.arguments is string %}{{ call.arguments }}{% else %}{{ call.arguments | tojson }}{% endif %}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}{% endgeneration %}
    {%- elif message.role == "tool" %}
        {%- if loop.first or messages[loop.index0 - 1].role != "tool" %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != "tool" %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}"""
STRICT = """{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}
{{ bos_token }}{% for message in messages %}
    {% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
    {% endif %}
    {% set role = 'model' if message['role'] == 'assistant' else message['role'] %}
{{ '<|im_start|>' + role | title + '\\n' + message['content'] | trim + '<|im_end|>\\n' }}
{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>model\\n' }}{% endif %}"""
PRINTING = """{%- macro show(x) -%}<{{ x }}>{%- endmacro -%}
{{ show(true) }}{{ show(none) }}{{ show(1.0) }}{{ show(3) }}{{ show([1, 'a', none, true, "it's", 2.5]) }}
{{ show({'a': 1, 'b': ['x', {'y': false}]}) }}{{ show(7 / 2) }}{{ show(7 // 2) }}{{ show(messages|length) }}
{{ {'k': 'ü "q" <b> & \\\\ \\n', 'n': none, 'f': 1e16, 'l': [], 'o': {}} | tojson }}
{{ {'b': 1, 'a': [1, {'c': 2}]} | tojson(indent=2) }}
{{ {'b': 1, 'a': 2} | tojson(sort_keys=true, separators=(',', ':')) }}{{ 'ü' | tojson(ensure_ascii=true) }}
{{ 'abc'[::-1] }}{{ 'Hello World'.split(' ')[1].upper() }}{{ '  x '.strip() }}|{{ 'a-b-c'.replace('-', '+') }}
{{ messages[-1].content.startswith('a') }}{{ 'x,y'.split(',') }}{{ 'title case'.title() }}{{ 'abc'.endswith('c') }}
{% for k, v in {'p': 1, 'q': 2}.items() %}{{ k }}={{ v }}{% if not loop.last %},{% endif %}{% endfor %}
{% for i in range(5) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}
{{ undefined_name }}{{ missing is defined }}{{ messages[0].get('nothing', 'fallback') }}
{{ none is iterable }}{{ 'a' is iterable }}{{ [] is iterable }}{{ '{\\n' | indent(4, first=true) }}
{{ 'a\\n\\nb' | indent }}
{{ ['b', 'a'] | sort | join(', ') }}{{ 'a' ~ 1 ~ none }}{{ [1, 2, 3] | map('string') | join }}{{ 'x' in 'xyz' }}
{{ messages | selectattr('role', 'equalto', 'user') | list | length }}{{ 'q' * 3 }}{{ -7 // 2 }}{{ 7 % 3 }}
{% set x = messages[0] %}{{ x['role'] }}{{ 'role' in x }}{{ x.keys() | list }}"""


def message(role: str, content: str | None, **more: object) -> dict[str, Any]:
    """One message of a chat."""
    return {"role": role, "content": content, **more}


CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "f", "arguments": {"city": "Zürich", "n": 2}},
}
TOOL = {
    "type": "function",
    "function": {
        "name": "f",
        "description": 'Finds "it" <fast> & well',
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
CHATS: dict[str, list[dict[str, Any]]] = {
    "one": [message("user", "Hello!")],
    "system": [message("system", "Be brief."), message("user", "Hi there")],
    "turns": [
        message("user", "What is 2+2?"),
        message("assistant", "It is 4."),
        message("user", "  And 3+3?\n\n"),
    ],
    "unicode": [message("user", "Grüße 👋🏽 中文 \t x\n\n 1  2")],
    "angles": [message("user", "if a < b and b > c: <b>bold</b> <|not|> <| <")],
    "thinking": [
        message("user", "a"),
        message("assistant", "<think>\nhm\n</think>\n\nyes"),
        message("user", "b"),
        message("assistant", "<think>x</think>y"),
    ],
    "calls": [
        message("user", "weather?"),
        message("assistant", None, tool_calls=[CALL]),
        message("tool", '{"t": 3}', tool_call_id="call_1"),
        message("tool", "second", tool_call_id="call_1"),
        message("assistant", "3 degrees"),
        message("user", "thanks"),
    ],
    "alternation": [message("user", "a"), message("user", "b")],
}
CASES: list[tuple[str, str, dict[str, Any]]] = (
    [
        ("demo", name, {"add_generation_prompt": True})
        for name in ["one", "system", "turns", "unicode", "angles"]
    ]
    + [("demo", name, {"add_generation_prompt": False}) for name in ["one", "turns"]]
    + [("demo", "thinking", {"continue_final_message": True})]
    + [("tools", name, {"add_generation_prompt": True}) for name in CHATS if name != "alternation"]
    + [
        ("tools", name, {"add_generation_prompt": True, "tools": [TOOL]})
        for name in ["one", "system", "calls"]
    ]
    + [("tools", "one", {"add_generation_prompt": True, "enable_thinking": False})]
    + [("tools", "thinking", {"continue_final_message": True})]
    + [
        ("strict", name, {"add_generation_prompt": True})
        for name in ["one", "system", "turns", "alternation"]
    ]
    + [("printing", name, {}) for name in ["one", "turns"]]
)


def byte_level_pipeline(path: str) -> tuple[PreTrainedTokenizerFast, str]:
    """The demo model's tokenizer and its chat template."""
    fields = gguf.GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    kinds = fields["tokenizer.ggml.token_type"].contents()
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"].contents()]
    pipeline = Tokenizer(models.BPE({token: index for index, token in enumerate(tokens)}, merges))
    pipeline.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    pipeline.decoder = decoders.ByteLevel()
    pipeline.add_special_tokens(
        [
            AddedToken(token, normalized=False, special=True)
            for token, kind in zip(tokens, kinds, strict=True)
            if kind == 3
        ]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=pipeline,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        unk_token="<|endoftext|>",
    )
    return tokenizer, fields["tokenizer.chat_template"].contents()


def byte_fallback_pipeline() -> Tokenizer:
    """A small SentencePiece-like tokenizer, as Llama 2's tokenizer.json is built."""
    trained = HERE / "tiny_byte_fallback.json"
    if trained.exists():
        return Tokenizer.from_file(str(trained))
    pipeline = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    pipeline.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    # Merges are learnt inside words only, as SentencePiece does; the finished pipeline splits nothing.
    pipeline.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    specials = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        special_tokens=specials,
        limit_alphabet=60,
        show_progress=False,
        max_token_length=12,
    )
    # Pieces that look like control tokens would be taken for such by llama.cpp.
    pipeline.train_from_iterator([text for text in TEXTS * 2 if "<|" not in text], trainer)
    data = json.loads(pipeline.to_str())
    data["pre_tokenizer"] = None
    data["added_tokens"] = [token for token in data["added_tokens"] if token["id"] < 3]
    data["decoder"] = {
        "type": "Sequence",
        "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ],
    }
    return Tokenizer.from_str(json.dumps(data))


def scores(pipeline: Tokenizer) -> list[float]:
    """A piece's score is the rank of the first merge that makes it, negated."""
    model = json.loads(pipeline.to_str())["model"]
    out = [-1e6] * len(model["vocab"])
    for rank, (left, right) in reversed(list(enumerate(model["merges"]))):
        out[model["vocab"][left + right]] = float(-rank)
    return out


def write_tiny_gguf(pipeline: Tokenizer, path: Path) -> None:
    """The tokenizer as GGUF metadata, with no more of a model than llama.cpp asks for."""
    vocab = pipeline.get_vocab()
    tokens = sorted(vocab, key=lambda token: vocab[token])
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(8)
    writer.add_feed_forward_length(8)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores(scores(pipeline))
    writer.add_token_types([2, 3, 3] + [6] * 256 + [1] * (len(tokens) - 259))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def decoded(tokenizer: PreTrainedTokenizerFast, last: int, ids: list[int]) -> str:
    """The promised text: decode(last prompt id + ids) less decode(last prompt id)."""
    options = {"skip_special_tokens": True, "clean_up_tokenization_spaces": False}
    before = tokenizer.decode([last], **options)
    after = tokenizer.decode([last, *ids], **options)
    assert after.startswith(before), (last, ids)
    return after[len(before) :]


def detokenizing(tokenizer: PreTrainedTokenizerFast, seed: int) -> list[dict[str, Any]]:
    """Real texts, and random ids whose bytes are valid UTF-8."""
    rng = random.Random(seed)
    size = len(tokenizer)
    specials = tokenizer.all_special_ids
    rows = []
    prompts = (tokenizer.encode("hello", add_special_tokens=False)[-1], specials[1])
    for text in TEXTS:
        ids = tokenizer.encode(text, add_special_tokens=False)
        rows += [
            {"last": last, "ids": ids, "text": decoded(tokenizer, last, ids)} for last in prompts
        ]
    while len(rows) < 2 * len(TEXTS) + 200:
        last = rng.randrange(size)
        ids = [
            rng.choice(specials) if rng.random() < 0.1 else rng.randrange(size)
            for _ in range(rng.randrange(1, 12))
        ]
        whole = tokenizer.decode(
            [last, *ids], skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        if "\ufffd" in whole or "\ufffd" in tokenizer.decode([last]):
            continue
        rows.append({"last": last, "ids": ids, "text": decoded(tokenizer, last, ids)})
    return rows


def main() -> None:
    """Writes the files."""
    tokenizer, demo_template = byte_level_pipeline(sys.argv[1])
    templates = {"tools": TOOLS, "strict": STRICT, "printing": PRINTING, "parts": PARTS}
    cases = []
    for template, chat, options in CASES:
        text = demo_template if template == "demo" else templates[template]
        case: dict[str, Any] = {"template": template, "chat": chat, "options": options}
        try:
            rendered = tokenizer.apply_chat_template(
                CHATS[chat], chat_template=text, tokenize=False, **options
            )
            case["text"] = rendered
            case["ids"] = tokenizer.encode(rendered, add_special_tokens=False)
        except jinja2.exceptions.TemplateError as error:
            case["error"] = str(error)
        cases.append(case)
    tiny = byte_fallback_pipeline()
    (HERE / "tiny_byte_fallback.json").write_text(tiny.to_str() + "\n", encoding="utf-8")
    write_tiny_gguf(tiny, Path(sys.argv[2]) / "tiny.gguf")
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tiny, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
    golden = {
        "templates": templates,
        "chats": CHATS,
        "cases": cases,
        "pipeline_ids": [tokenizer.encode(text, add_special_tokens=False) for text in TEXTS],
        "tiny_ids": [wrapped.encode(text, add_special_tokens=False) for text in TEXTS],
        "tiny_scores": scores(tiny),
        "demo_texts": detokenizing(tokenizer, 1),
        "tiny_texts": detokenizing(wrapped, 2),
    }
    rows = ",\n".join(
        f"{json.dumps(key)}: "
        + (
            "[\n" + ",\n".join(json.dumps(row) for row in value) + "\n]"
            if isinstance(value, list)
            else json.dumps(value)
        )
        for key, value in golden.items()
    )
    (HERE / "transformers.json").write_text("{" + rows + "}\n", encoding="ascii")


if __name__ == "__main__":
    main()
