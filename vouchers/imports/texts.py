"""What an import says of a file, its rows and its preview, in the reader's language."""

from pathlib import Path

from seckill_site.web.text_files import read_texts

TEXTS = read_texts(Path(__file__).with_name("import_texts.toml"))
FILE, BAD_CELL, PROBLEM = (TEXTS[it] for it in ("file", "bad_cell", "problem"))
WARNING, OUTCOME = TEXTS["warning"], TEXTS["outcome"]
