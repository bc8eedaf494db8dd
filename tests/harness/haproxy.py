"""A real HAProxy."""

from __future__ import annotations

import csv
import socket
import subprocess
from typing import TYPE_CHECKING, Self

from harness.binaries import require
from harness.child import Child

if TYPE_CHECKING:
    from pathlib import Path


class Haproxy(Child):
    """One HAProxy in the foreground. A second configuration file gives it an admin socket.

    The directory's path must be short enough for a unix socket (107 bytes).
    """

    def __init__(self, directory: Path, config_text: str, name: str = "haproxy") -> None:
        super().__init__(name, directory)
        self._program = require("haproxy")
        self.admin_socket = directory / f"{name}.sock"
        self.config = directory / f"{name}.cfg"
        self._admin_config = directory / f"{name}-admin.cfg"
        self.config.write_text(config_text)
        self._admin_config.write_text(f"global\n  stats socket {self.admin_socket} mode 600 level admin\n")

    def check(self) -> None:
        """AssertionError for an invalid configuration, and for one with a warning."""
        done = subprocess.run(
            self._call("-c", "-dW"), capture_output=True, text=True, timeout=90, check=False, cwd=self.directory
        )
        assert done.returncode == 0, f"haproxy refuses the configuration\n{done.stdout}{done.stderr}"

    def start(self) -> Self:
        """Check the configuration, start, and return once every listener is open."""
        self.check()
        return super().start()

    def admin(self, command: str) -> str:
        """The admin socket's answer to one command."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(5)
            connection.connect(str(self.admin_socket))
            connection.sendall(f"{command}\n".encode())
            return b"".join(iter(lambda: connection.recv(65536), b"")).decode()

    def show_servers(self) -> dict[tuple[str, str], dict[str, str]]:
        """The row of ``show stat`` for every (backend, server)."""
        rows = csv.DictReader(self.admin("show stat").removeprefix("# ").splitlines())
        return {(row["pxname"], row["svname"]): row for row in rows if row["svname"] not in {"FRONTEND", "BACKEND"}}

    def _command(self) -> list[str]:
        return self._call("-db")

    def _call(self, *modes: str) -> list[str]:
        return [self._program, *modes, "-f", str(self.config), "-f", str(self._admin_config)]

    def _is_ready(self) -> bool:
        # HAProxy opens every listener before it serves one.
        return "Name: HAProxy" in self.admin("show info")
