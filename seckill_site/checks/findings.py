"""What start-up checks find: ``findings.toml`` has a text and a hint for each id."""

import tomllib
from pathlib import Path

from django.core.checks import CheckMessage, Error, Warning

_TEXTS = tomllib.loads(Path(__file__).with_name("findings.toml").read_text("utf-8"))


def finding(number: str, /, **values: object) -> CheckMessage:
    """Return a finding with these values in its texts: an error (``E``) or a warning (``W``)."""
    kind = Error if number.startswith("E") else Warning
    text, hint = (_TEXTS[number][name].format(**values) for name in ("text", "hint"))
    return kind(text, hint=hint, id=f"seckill.{number}")
