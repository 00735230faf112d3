"""Path converters of the site's URLs."""

LARGEST_ID = 2**63 - 1


class IdConverter:
    """A positive id that fits the database: ASCII digits, no leading zero, at most 63 bits."""

    regex = "[1-9][0-9]{0,18}"

    def to_python(self, value: str) -> int:
        """Return the id.

        :raises ValueError: it has more than 63 bits; Django answers that as *not found*.
        """
        number = int(value)
        if number > LARGEST_ID:
            raise ValueError(value)
        return number

    def to_url(self, value: int) -> str:
        return str(value)
