"""Finds files of the settings that are missing, or whose secret other users of the machine can read or change.

Each is a warning, not an error. A file may be mounted later. A mounted secret often has mode 0644, which is the default
of Kubernetes, and the container has no other users who could read it. There ``defaultMode`` of the volume sets the
mode, not ``chmod``. The group may read a file that belongs to another user, such as root: a sidecar without root's
rights needs that.
"""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sidecar.config import redis_urls

if TYPE_CHECKING:
    from sidecar.config.settings import Config

_OTHERS: Final = stat.S_IROTH | stat.S_IWOTH
_GROUP: Final = stat.S_IRGRP | stat.S_IWGRP
_READ: Final = stat.S_IROTH | stat.S_IRGRP


def problems(config: Config) -> Iterator[str]:
    """Yield a line for each missing directory or file, and for each open secret. It reads the disk, which may hang."""
    state_dir = config.process.state_dir
    if state_dir and not Path(state_dir).is_dir():
        yield f"ARBITER_STATE_DIR: {state_dir} is no directory: a cull would not survive the sidecar"
    yield from of_secrets(config)


def secrets(config: Config) -> dict[str, str]:
    """Return the files that hold a secret, by setting."""
    url = config.redis.redis_url
    of_redis = redis_urls.tls_files(url) if url else {}
    found = {
        "token_file": config.server.token_file,
        "tls_key": config.tls.tls_key,
        "redis_password_file": config.redis.redis_password_file,
        "redis_url": of_redis.get("ssl_keyfile") or of_redis.get("ssl_certfile", ""),  # which may hold both
        "webhook_url_file": config.notify.webhook_url_file,
    }
    return {name: path for name, path in found.items() if path}


def of_secrets(config: Config) -> Iterator[str]:
    """Yield a line for each file with a secret that is missing, or open to other users."""
    for name, path in secrets(config).items():
        try:
            found = Path(path).stat()
        except OSError as error:
            yield f"ARBITER_{name.upper()}: {path} cannot be read: {error.strerror}"
            continue
        mode = stat.S_IMODE(found.st_mode)
        is_own = found.st_uid == os.geteuid() != 0
        granted = mode & (_OTHERS | _GROUP if is_own else _OTHERS)
        if stat.S_ISREG(found.st_mode) and granted:
            who = "all users" if granted & _OTHERS else f"the users of group {found.st_gid}"
            yield (
                f"ARBITER_{name.upper()}: {who} can {'read' if granted & _READ else 'change'} {path} "
                f"(mode {mode:04o}): give it to the user of the sidecar, and type chmod 600 {shlex.quote(path)}"
            )
