"""The shop's Django app of locks: ``manage.py locks`` and a page in the admin. Not in the wheel."""
