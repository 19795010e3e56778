"""The worker process of one rank: the step protocol over a Unix socket, around the engine."""
