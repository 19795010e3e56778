"""Log lines are one JSON object each, whatever the message holds."""

import json
import logging
from datetime import datetime

from headrace.log import JsonFormatter, with_fields


def record(message, level=logging.INFO, error=None, **extra):
    info = (type(error), error, error.__traceback__) if error else None
    made = logging.LogRecord("headrace.worker", level, "f.py", 1, message, (), info)
    made.__dict__.update(extra)
    return made


def test_the_shape_that_the_router_logs_too():
    line = JsonFormatter({"rank": 3}).format(record('ünï\n"x"', **with_fields(epoch=2)))
    assert "\n" not in line
    fields = json.loads(line)
    moment = fields.pop("timestamp")
    assert moment.endswith("Z")
    assert datetime.fromisoformat(moment).tzinfo is not None
    assert fields == {
        "level": "INFO",
        "target": "headrace.worker",
        "message": 'ünï\n"x"',
        "rank": 3,
        "epoch": 2,
    }


def test_levels_are_tracings_names_and_traces_stay_in_the_line():
    formatter = JsonFormatter({})
    assert json.loads(formatter.format(record("m", logging.WARNING)))["level"] == "WARN"
    try:
        raise ValueError("a\nb")
    except ValueError as error:
        line = formatter.format(record("m", logging.ERROR, error))
    assert "\n" not in line
    assert "ValueError" in json.loads(line)["traceback"]
