"""Downloads from the hub, through huggingface_hub. Used by the launcher, never by a worker."""
