"""What the lab says, in the reader's language."""

from pathlib import Path

from seckill_site.web.text_files import read_texts

TEXTS = read_texts(Path(__file__).with_suffix(".toml"))
