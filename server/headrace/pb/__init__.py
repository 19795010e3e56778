"""Generated code of the step protocol (`proto/generate.py`); imported by `headrace.worker` only."""
