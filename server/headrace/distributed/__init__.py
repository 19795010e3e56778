"""Ranks of one model: what each holds, and the sums and gathers between them."""

from headrace.distributed.process_group import ProcessGroup

__all__ = ["ProcessGroup"]
