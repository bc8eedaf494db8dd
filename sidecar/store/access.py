"""The files that a connection to Redis needs besides the URL: a password and certificates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Access:
    """Paths of files, ``""`` for none. All but the password are PEM; ``cert`` without ``key`` holds both."""

    password_file: str = ""
    ca: str = ""
    cert: str = ""
    key: str = ""

    @property
    def certificates(self) -> tuple[str, ...]:
        """The paths that only TLS can use."""
        return tuple(filter(None, (self.ca, self.cert, self.key)))


NO_FILES: Final = Access()


class AccessError(ValueError):
    """The files cannot be used, or contradict the URL. The message repeats neither files nor URL."""
