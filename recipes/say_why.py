"""A script's errors as their reasons: what was wrong and what to do, in place of a stack trace."""

from __future__ import annotations

import sys
from collections.abc import Callable


def say_why(main: Callable[[], object]) -> None:
    """Run `main`; what a user can mend ends it with status 1 and the error's own words on standard error."""
    try:
        main()
    except (OSError, ValueError) as error:
        sys.exit(f"{type(error).__name__}: {error}")
