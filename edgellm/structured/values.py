"""Reading JSON that a model wrote."""

from __future__ import annotations

import json
from typing import Any


def read_json(text: str) -> Any:
    """The value of a JSON text. Raises ValueError, also for one nested deeper than Python can follow."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("the text is nested too deeply") from None
