"""The one exception for a user's mistake: one line that names the argument, the rule and the value."""


class InputError(ValueError):
    """Something the user gave cannot be used; the message says what, why and what to do.

    The command line prints the message and exits with code 2; in Python it is an ordinary `ValueError`.
    """

    exit_code = 2


class InputTypeError(InputError, TypeError):
    """An argument of the wrong type; also a `TypeError`."""
