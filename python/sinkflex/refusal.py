"""The one exception for failures that a user can understand and act on. Standard library only.

A `Refusal` is a sentence in parts: `what` happened, `where`, `why`, and what to do (`fix`). It becomes the `error`
of the `end` event and the exit code of the worker. Every other exception is a bug in SinkFlex.
"""

from __future__ import annotations

import errno
import os
from typing import Any, Literal

Owner = Literal["env", "user", "policy", "reward", "engine", "infra"]
ExitCode = Literal[1, 2, 3]

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Refusal(Exception):
    """Raised anywhere in the worker. `exit_code`: 1 the run failed, 2 a config only Python can judge, 3 something to
    install. `code` is permanent: documents and scripts refer to it. `owner` says whose fault it is (DESIGN section 3).
    """

    def __init__(
        self,
        code: str,
        what: str,
        *,
        why: str,
        fix: str,
        where: str | None = None,
        owner: Owner = "infra",
        exit_code: ExitCode = 1,
    ) -> None:
        super().__init__(f"{what} {why} {fix}")
        self.code = code
        self.what = what
        self.why = why
        self.fix = fix
        self.where = where
        self.owner: Owner = owner
        self.exit_code: ExitCode = exit_code

    def as_error(self) -> dict[str, Any]:
        """The `error` object of the `end` event."""
        error: dict[str, Any] = {"owner": self.owner, "code": self.code, "what": self.what}
        if self.where is not None:
            error["where"] = self.where
        return {**error, "why": self.why, "fix": self.fix}


def disk_is_full(error: BaseException) -> bool:
    """Also through libraries that wrap the system's error in their own: only its text survives there."""
    if isinstance(error, OSError) and error.errno in _NO_SPACE:
        return True
    if any(f"os error {number}" in str(error) or os.strerror(number) in str(error) for number in _NO_SPACE):
        return True
    return error.__context__ is not None and disk_is_full(error.__context__)
