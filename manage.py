#!/usr/bin/env python
"""Django's command line for this site."""

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "seckill_site.settings")
    # A migration may take its time: nobody waits for its page.
    os.environ.setdefault("SECKILL_DATABASE_TIMEOUT_S", "600")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
