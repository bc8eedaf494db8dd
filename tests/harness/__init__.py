"""Real servers, real sidecars and fakes for the tests.

A sidecar is started in one of three ways:

- ``sidecar``: a process, for signals, exit codes, files and the log; the fixtures are in ``children``.
- ``sidecar_thread``: a loop in a thread of the test, for what one or many answer to commands, apps and one another.
- ``composition``: the loop of the test itself, for what stands inside.

``child`` is any child process, and ``fork_server`` starts those of the sidecar without their imports. ``command`` runs
a command beside a sidecar. A test waits with ``waiting``, or moves the clock of ``virtual_time`` or ``redis_server``.
"""
