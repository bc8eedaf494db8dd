"""A real nginx in the foreground, with a configuration of our own."""

from __future__ import annotations

import subprocess
from pathlib import Path

from harness.binaries import require
from harness.child import Child
from harness.ports import is_open

_MAIN = """\
daemon off;
worker_processes 1;
pid {directory}/nginx.pid;
error_log stderr;
events {{}}
http {{
    access_log off;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    include {site};
}}
"""


class Nginx(Child):
    """One nginx with ``site_text`` within its ``http`` block, listening on ``port``."""

    def __init__(self, directory: Path, site_text: str, port: int) -> None:
        super().__init__("nginx", directory)
        self._program = require("nginx")
        self._port = port
        self._config = directory / "nginx.conf"
        site = directory / "site.conf"
        site.write_text(site_text)
        self._config.write_text(_MAIN.format(directory=directory, site=site))

    def check(self) -> str:
        """What ``nginx -t`` says about the configuration; AssertionError when it refuses it."""
        done = subprocess.run(self._command("-t"), capture_output=True, text=True, timeout=20, check=False)
        assert done.returncode == 0, done.stderr
        return done.stderr

    def workers(self) -> set[str]:
        """The process ids of its workers, also of those that only end what they have begun."""
        return set(Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split())

    def reload_command(self) -> str:
        """What has it read its configuration again; no word of it has a blank."""
        return " ".join(self._command("-s", "reload"))

    def _command(self, *arguments: str) -> list[str]:
        return [self._program, "-e", "stderr", "-p", str(self.directory), "-c", str(self._config), *arguments]

    def _is_ready(self) -> bool:
        # The master opens the port before there is a worker, whom ``workers`` has to know before a reload.
        return is_open(self._port) and bool(self.workers())
