"""Llama, and its like: Mistral and Qwen2 are the same decoder with other biases and windows."""
