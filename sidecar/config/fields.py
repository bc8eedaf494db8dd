"""The settings of planned ends and of those who look: lifetimes, the run lock, messages, the page, evidence.

``settings`` has the others, and joins them all.
"""

from __future__ import annotations

from pydantic import BaseModel, Field

from sidecar.config.field_types import (
    Budget,
    Count,
    FilePath,
    Fraction,
    ListenOrOff,
    LongSeconds,
    Part,
    Seconds,
    Selectors,
    Switch,
    WebUrls,
)


class Lifetimes(BaseModel):
    """Planned ends: of the app's container under a lease, of the sidecar itself under a run lock."""

    lifetime: LongSeconds = Field(
        0, description="Age at which an app is retired: drained and replaced as by a cull, without a token; 0: never."
    )
    lifetime_jitter: Part = Field(
        0.1,
        ge=0,
        le=0.5,
        description="Part of its lifetime by which an app is retired earlier or later, from 0 to 0.5.",
    )
    lifetime_max: LongSeconds = Field(
        0, description="Age up to which an app lives on while it is busy; 0: no longer than others."
    )
    busy_load: Fraction = Field(
        0, ge=0, description="Load above which an app is busy, by `scrape_load` or by what the app reports."
    )
    scrape_load: Selectors = Field("", description="What on the page tells the load; without it, requests in flight.")
    retire_slots: Budget = Field(
        "1", description="Maximum number of containers away at once to be retired: a count, or a part of the fleet."
    )
    retire_timeout: Seconds = Field(
        600,
        ge=10,
        description="Maximum time of a retirement; then its slot is free, and a container that is still there is back.",
    )
    replace_time: Seconds = Field(
        60, ge=1, description="Usual time of replacing a container, to reckon whether a fleet can be retired in time."
    )
    run_lock: FilePath = Field(
        "", description="Directory whose locks let one sidecar of several run, and the next take over its sockets."
    )
    standby: bool = Field(default=False, description="Wait as standby while another holds the run lock.")
    run_lifetime: Seconds = Field(
        0, description="Time after which a sidecar with a run lock hands over to its standby; 0: never."
    )
    run_every: Seconds = Field(60, ge=1, description="Time between two starts of sidecars with a run lock, as by cron.")
    standby_for: Seconds = Field(
        0, description="Maximum time for which a standby waits for its turn, then it ends; 0: for ever."
    )


class Telling(BaseModel):
    """Who is told what: evidence, the ledger, messages, the page, and who may do something there."""

    enforce_percent: Count = Field(
        100, ge=0, le=100, description="Percent of the containers that are culled; the others only would be."
    )
    cull_hook: FilePath = Field(
        "", description="Program that is run before a granted cull drains; what it prints is kept with the cull."
    )
    cull_hook_timeout: Seconds = Field(
        5, ge=0.1, le=60, description="Maximum time that the hook may take, 100ms to 1m."
    )
    events_max: Count = Field(
        10_000, ge=100, description="Maximum number of events of the service that are kept in Redis."
    )
    page_listen: ListenOrOff = Field(
        "off", description="Where the status page is served to others, with a token; the local door has it anyway."
    )
    token_file: FilePath = Field(
        "", description="File with the token that everything needs which changes something from outside."
    )
    tls_cert: FilePath = Field("", description="File with the certificate of our doors, read anew when it changes.")
    tls_key: FilePath = Field("", description="File with its key.")
    tls_doors: str = Field(
        "page", description="Which doors speak TLS then, with commas between: `page`, `public`, `local`, `agent`."
    )
    webhook_url: WebUrls = Field(
        "", description="Where messages for people are posted as JSON; several with commas, one of them is enough."
    )
    webhook_url_file: FilePath = Field("", description="File with these URLs instead, one a line, if they are secret.")
    webhook_template: FilePath = Field("", description="File with the JSON of these messages, `$` before its fields.")
    slack_url_file: FilePath = Field("", description="File with the URL of Slack's incoming webhook.")
    pagerduty_key_file: FilePath = Field("", description="File with the integration key of PagerDuty's Events API v2.")
    pagerduty_url: WebUrls = Field("https://events.pagerduty.com/v2/enqueue", description="Where that API is.")
    alertmanager_url: WebUrls = Field("", description="Alertmanagers to tell, such as `http://alerts:9093`.")
    runbook_url: WebUrls = Field("", description="What links to runbooks begin with in messages and in `/why`.")
    page_url: WebUrls = Field("", description="Where people find the status page, for messages.")
    messages: Switch = Field("on", description="`off` sends none, whatever else is set.")
