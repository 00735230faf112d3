"""Whether a buyer can be reached at an address that they have proved to be theirs."""

from accounts.contacts import confirmed_contacts


def has_confirmed_contact(*, user_id: int) -> bool:
    """Return whether the account has a confirmed e-mail address or phone number."""
    found = confirmed_contacts([user_id])[user_id]
    return bool(found.email or found.phone)
