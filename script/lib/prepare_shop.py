"""Bring the embedded shop's data up to date: its tables, its static files if asked, its demo.

One process for all of it, because loading Django is what takes the time.
"""

import sys
from pathlib import Path

import django
from django.core.management import call_command

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))


def main(*, with_static_files: bool) -> None:
    django.setup()
    call_command("migrate", interactive=False, verbosity=0)
    if with_static_files:
        call_command("collectstatic", interactive=False, verbosity=0)
    call_command("demo")


if __name__ == "__main__":
    main(with_static_files="--static" in sys.argv)
