"""Test 500 random variants of inputs: each gives the value of an independent reference, or one line that names it."""

import random
import signal
import warnings

import pytest
import torch

from graphcl.errors import InputError
from graphcl.registry import losses
from tests.conftest import restored
from tests.variants import KINDS, Refused

EACH = 500 // len(KINDS) + 1


def outcome(call, expected):
    """Return None if the call has the expected result, else what it has."""
    try:
        signal.setitimer(signal.ITIMER_REAL, 20)  # for a call that waits, as for a named pipe
        found = call()
    except InputError as error:
        message = str(error)
        fits = isinstance(expected, Refused) and expected in message
        short = message.isprintable() and 0 < len(message) < 2000
        return None if fits and short else f"refused: {message!r}, expected {expected!r:.300}"
    except (Exception, SystemExit) as error:
        return f"{type(error).__name__}: {error}, expected {expected!r:.300}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    if isinstance(expected, float):
        return None if abs(found - expected) <= 1e-4 * abs(expected) + 1e-6 else f"{found}, expected {expected}"
    return None if found == expected else f"{found!r:.600}, expected {expected!r:.600}"


def too_long(*_):
    raise TimeoutError("the call waits")


@pytest.mark.parametrize("kind", KINDS)
def test_random_variants_give_the_right_value_or_one_line(kind, tmp_path):
    wrong = []
    signal.signal(signal.SIGALRM, too_long)
    with warnings.catch_warnings(), restored(losses):
        warnings.simplefilter("ignore")
        for number in range(EACH):
            rng = random.Random(f"{kind} {number}")
            torch.manual_seed(number)
            folder = tmp_path / str(number)
            folder.mkdir()
            if found := outcome(*KINDS[kind](rng, folder)):
                wrong.append(f"{number}: {found}")
    assert not wrong, "\n".join(wrong)
