#!/usr/bin/env python
"""Django's command line for this site."""

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "seckill_site.settings")
    # A migration may take its time: nobody waits for its page.
    os.environ.setdefault("SECKILL_DATABASE_TIMEOUT_S", "600")
    from seckill_site.command_line import CommandLine

    CommandLine(sys.argv).execute()


if __name__ == "__main__":
    main()
