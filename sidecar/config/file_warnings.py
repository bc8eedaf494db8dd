"""Warns of the state directory, and of files with a secret, that are missing or open to other users.

That is no reason not to start: a file may be mounted later. A mounted secret often has mode 0644, which is the default
of Kubernetes, and the container has no other users who could read it. There ``defaultMode`` of the volume sets the
mode, not ``chmod``. The group may read a file that belongs to another user, such as root: a sidecar without root's
rights needs that.
"""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sidecar.config import redis_urls

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sidecar.config.settings import Config

_OTHERS: Final = stat.S_IROTH | stat.S_IWOTH
_GROUP: Final = stat.S_IRGRP | stat.S_IWGRP
_READ: Final = stat.S_IROTH | stat.S_IRGRP


def warnings(config: Config) -> Iterator[str]:
    """Yield a line for each missing directory or file, and for each open secret. It reads the disk, which may hang."""
    state_dir = config.process.state_dir
    if state_dir and not Path(state_dir).is_dir():
        yield f"ARBITER_STATE_DIR: {state_dir} is no directory: a cull would not survive the sidecar"
    elif state_dir and not os.access(state_dir, os.W_OK | os.X_OK):
        yield f"ARBITER_STATE_DIR: {state_dir} cannot be written to by this user: a cull would not survive the sidecar"
    for name, path in secrets(config).items():
        if problem := _secret_problem(path):
            yield f"ARBITER_{name.upper()}: {problem}"


def secrets(config: Config) -> dict[str, str]:
    """Return the files that hold a secret, by setting."""
    url = config.redis.redis_url
    of_redis = redis_urls.split(url).tls_files if url else {}
    files = {
        "token_file": config.server.token_file,
        "tls_key": config.tls.tls_key,
        "redis_password_file": config.redis.redis_password_file,
        "redis_url": of_redis.get("ssl_keyfile") or of_redis.get("ssl_certfile", ""),  # which may hold both
    }
    return {name: path for name, path in files.items() if path}


def _secret_problem(path: str) -> str:
    """Why a file with a secret is missing, or open to other users; ``""`` if it is neither."""
    try:
        status = Path(path).stat()
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    mode = stat.S_IMODE(status.st_mode)
    is_own = status.st_uid == os.geteuid() != 0
    granted = mode & (_OTHERS | _GROUP if is_own else _OTHERS)
    if not stat.S_ISREG(status.st_mode) or not granted:
        return ""
    who = "all users" if granted & _OTHERS else f"the users of group {status.st_gid}"
    return (
        f"{who} can {'read' if granted & _READ else 'change'} {path} (mode {mode:04o}): give it to the user of the "
        f"sidecar, and type chmod 600 {shlex.quote(path)}"
    )
