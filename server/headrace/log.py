"""Logging as JSON lines on standard error, one object a line, in the shape that the router logs too.

{"timestamp": "2026-01-31T12:00:00.123456Z", "level": "INFO", "target": "headrace.worker",
 "message": "listening", "rank": 0, ...}
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

_LEVELS = {
    "trace": logging.DEBUG,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
_NAMES = {logging.WARNING: "WARN", logging.CRITICAL: "ERROR"}
LEVELS = tuple(_LEVELS)
"""Names that `--log-level` takes."""


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object; `extra={"fields": {...}}` adds keys to it."""

    def __init__(self, fields: dict[str, object]) -> None:
        """`fields` stand in every line."""
        super().__init__()
        self._fields = fields

    def format(self, record: logging.LogRecord) -> str:
        """One line, without its line break."""
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds")
        line: dict[str, object] = {
            "timestamp": moment.replace("+00:00", "Z"),
            "level": _NAMES.get(record.levelno, record.levelname),
            "target": record.name,
            "message": record.getMessage(),
            **self._fields,
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            # Only for what nobody expected: the whole trace, still in one line.
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def start_logging(level: str, **fields: object) -> None:
    """Sends every logger of the process to standard error.

    Args:
        level: One of `LEVELS`.
        fields: Keys for every line.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(fields))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(_LEVELS[level])
    # Libraries speak up only for what went wrong.
    for name in ("filelock", "urllib3", "httpx", "httpcore", "huggingface_hub", "torch"):
        logging.getLogger(name).setLevel(max(logging.WARNING, _LEVELS[level]))
    logging.captureWarnings(capture=True)


def with_fields(**fields: object) -> dict[str, object]:
    """The `extra` argument of a logging call: `log.info("done", extra=with_fields(seconds=3))`."""
    return {"fields": fields}
