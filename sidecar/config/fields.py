"""Settings of planned restarts and of operations: lifetimes, the run lock, messages, the page, evidence.

``settings_model`` has the other settings, and joins them all.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from sidecar.config.field_types import (
    Budget,
    Count,
    FilePath,
    Fraction,
    Link,
    ListenOrOff,
    LongSeconds,
    Seconds,
    WebUrl,
)


class _Fields(BaseModel):
    model_config = ConfigDict(defer_build=True)  # pydantic builds only the model that joins them, at its first use


class LifetimeFields(_Fields):
    """Planned ends: of the app's container under a lease, of the sidecar itself under a run lock."""

    lifetime: LongSeconds = Field(
        0, description="Age at which an app is retired: drained and replaced as by a cull, without a token; 0: never."
    )
    lifetime_max: LongSeconds = Field(
        0, description="Maximum age of an app that is not retired while it is busy; 0: being busy does not matter."
    )
    busy_load: Fraction = Field(
        0, ge=0, description="Load above which an app is busy: what the app reports, or else its requests in flight."
    )
    retire_slots: Budget = Field(
        "1", description="Maximum number of containers retired at the same time: a count, or a percentage."
    )
    run_lock: FilePath = Field(
        "", description="Directory of the run lock, by which one of several sidecars runs; empty: no lock."
    )
    standby: bool = Field(
        default=False, description="Whether the sidecar waits as standby while another holds the run lock."
    )


class OperationFields(_Fields):
    """What operators see and may do: evidence, the ledger, messages, the page, and access to them."""

    enforce_percent: Count = Field(
        100,
        ge=0,
        le=100,
        description="Percentage of the containers that `enforce` is for; the others run as in `shadow`.",
    )
    action: Literal["check", "exit", "command", "nomad-restart", "nomad-stop"] = Field(
        "check",
        description="Action after the drain: `check` (its failing check restarts the container), `exit`, `command`, "
        "`nomad-restart` or `nomad-stop`.",
    )
    action_command: str = Field(
        "", description="Command of the action `command`, which no shell reads: `systemctl restart app`."
    )
    action_timeout: Seconds = Field(30, ge=0.1, le=300, description="Maximum time of the action, 100ms to 5m.")
    nomad_task: str = Field("", description="Name of the task that the action `nomad-restart` restarts.")
    cull_hook: FilePath = Field("", description="Path of a program that runs before the drain of a cull; empty: none.")
    cull_hook_timeout: Seconds = Field(5, ge=0.1, le=60, description="Maximum time of the hook, 100ms to 1m.")
    page_listen: ListenOrOff = Field(
        "off", description="Address of the status page for other machines, which needs a token, or `off`."
    )
    token_file: FilePath = Field(
        "", description="Path of the file with the token for the page listener and orders over TCP; empty: none."
    )
    tls_cert: FilePath = Field(
        "", description="Path of the listeners' certificate in PEM, read again when it changes; empty: no TLS."
    )
    tls_key: FilePath = Field("", description="Path of the key of that certificate in PEM.")
    tls_listeners: str = Field(
        "page", description="Listeners that use the certificate, with commas between: `page`, `public`, `local`."
    )
    tls_client_ca: FilePath = Field(
        "",
        description="Path of the PEM file with the authorities of clients: these listeners then require a certificate "
        "that one of them has signed, read again when it changes; empty: clients need none.",
    )
    webhook_url: WebUrl = Field(
        "", description="URL for messages, of Slack, Mattermost or Teams as it is; empty: none."
    )
    webhook_url_file: FilePath = Field("", description="Path of the file with this URL instead, if it is secret.")
    webhook_template: FilePath = Field(
        "", description="Path of the file with the JSON of messages, `$` before its fields; empty: their text alone."
    )
    runbook_url: Link = Field(
        "", description="URL with which the links to runbooks begin, in messages and in `/why`; empty: no links."
    )
    page_url: Link = Field("", description="URL of the status page for the links in messages; empty: no links.")
