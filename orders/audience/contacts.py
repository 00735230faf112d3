"""Whether a buyer can be reached at an address that they have proved to be theirs."""


def has_confirmed_contact(*, user_id: int) -> bool:
    """Return whether the account has a confirmed e-mail address or phone number.

    No account has one yet: nobody has ever been asked to prove that ``User.email`` is theirs.
    """
    return False
