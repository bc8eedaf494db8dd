#!/usr/bin/env bash
# Reports errors of a job to the sidecar: nightly-import || report.sh cron
# Usage: report.sh [KIND [COUNT]]. Sends a datagram if ARBITER_STATSD_LISTEN is set, else posts to ARBITER_SOCKET or
# ARBITER_LOCAL_LISTEN (127.0.0.1:9180). Never fails, because a job must not fail for want of a sidecar.
kind=${1:-cron} count=${2:-1}
kind=${kind//[^A-Za-z0-9_.:\/-]/_}
[[ $count =~ ^[1-9][0-9]{0,5}$ ]] || count=1
listen=${ARBITER_STATSD_LISTEN:-} local_address=${ARBITER_LOCAL_LISTEN:-127.0.0.1:9180}

if [[ $listen == *:* ]]; then
    host=${listen%:*} port=${listen##*:}
    host=${host#[} host=${host%]}
    { printf 'errors:%s|c|#kind:%.64s' "$count" "$kind" >"/dev/udp/$host/$port"; } 2>/dev/null
else
    body=$(printf '{"count":%s,"kind":"%.64s"}' "$count" "$kind")
    post() {
        local options=(--silent --max-time 2 --output /dev/null --write-out '%{http_code}' --data "$body")
        status=$(curl "${options[@]}" "${@:2}") || return
        [[ $status == 2* || $status == 503 ]] ||
            printf 'health-arbiter: %s answers %s: it is not the local listener of a sidecar\n' "$1" "$status" >&2
    }
    { [[ -n ${ARBITER_SOCKET:-} ]] && post "$ARBITER_SOCKET" --unix-socket "$ARBITER_SOCKET" http://localhost/errors; } ||
        { [[ $local_address != off ]] && post "$local_address" "http://$local_address/errors"; } ||
        printf 'health-arbiter: no sidecar answers: the report is dropped\n' >&2
fi
exit 0
