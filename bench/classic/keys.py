"""The names of the classic design's keys in Redis."""

STREAM = "classic:orders"
GROUP = "writers"


def session_key(token: str) -> str:
    return f"classic:session:{token}"


def id_key(day: str) -> str:
    return f"classic:ids:{day}"


def stock_key(sale_id: int) -> str:
    return f"classic:stock:{sale_id}"


def buyers_key(sale_id: int) -> str:
    return f"classic:buyers:{sale_id}"
