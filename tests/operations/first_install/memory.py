"""Print the proportional memory of each part in MB, as JSON."""

import json
import re
import sys
from collections import Counter
from pathlib import Path

KINDS = {
    "seckill_site.asgi": "web",
    "worker --queues": "workers",
    "seckill_site.celery:beat": "beat",
    "manage.py metrics": "metrics",
    "mariadbd": "MariaDB",
    "redis-server": "Redis",
    "nginx": "nginx",
}

found: Counter[str] = Counter()
for process in Path("/proc").glob("[0-9]*"):
    words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    kind = next((name for word, name in KINDS.items() if word in words), "")
    if kind and (pss := re.search(r"^Pss: +(\d+)", (process / "smaps_rollup").read_text(), re.M)):
        found[kind] += int(pss[1])
sys.stdout.write(json.dumps({name: round(kb / 1024) for name, kb in found.items()}))
