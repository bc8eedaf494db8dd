{{- /*
  cascade.cfg with a server line for each allocation in Nomad's service registry, for Nomad's template block or for
  consul-template. Each server has the name of its allocation, so that HAProxy finds it in the state file after a reload.
  The tag "agent-port=<port>" gives the agent's port. Without it there is no agent-check, and the weight stays full.
*/ -}}
global
    log stdout format raw local0
    maxconn 4000
    stats socket /run/haproxy/admin.sock mode 660 level admin
    # Written before each reload, read at the start. Create it once before the first start: echo 1 > this file.
    server-state-file /var/lib/haproxy/server-state

defaults
    mode http
    log global
    option httplog
    option dontlognull
    option log-health-checks        # one line for each change of a server, with the reason
    timeout connect 500ms           # one network hop; a server that is slower is skipped
    timeout client 30s
    timeout server 10s              # longer than the slowest request
    timeout queue 250ms             # all servers are full: fail at once, so that users do not wait in a queue
    timeout http-request 10s        # a client that needs longer to send its headers is dropped
    timeout http-keep-alive 10s
    timeout check 1s                # for connecting and answering, of both kinds of check
    load-server-state-from-file global

frontend public
    bind :8000
    default_backend app

frontend metrics
    bind :8405
    option dontlog-normal
    http-request use-service prometheus-exporter if { path /metrics }
    http-request return status 404

backend app
    balance roundrobin              # in proportion to the weights, which agents change without a reload
    retries 2                       # so at most three servers see a request
    option redispatch 1             # and every retry goes to another server
    retry-on conn-failure empty-response 500 502 503 504
    # Methods that change something are sent once. A connection that failed has sent nothing, so it is always retried.
    http-request disable-l7-retry unless { method GET HEAD OPTIONS }
    option httpchk
    http-check send meth GET uri / ver HTTP/1.1 hdr Host app
    http-check expect status 200-399
    # weight 100: the agent's percentage is a part of this. maxconn: twice the requests in flight on a busy day.
    default-server weight 100 maxconn 64 slowstart 20s
    default-server check inter 2s fall 3 rise 2 agent-check agent-port 9182 agent-inter 2s
    {{- range nomadService "app" }}
    {{- $agent := "no-agent-check" }}
    {{- range .Tags }}
    {{- if regexMatch "^agent-port=[0-9]+$" . }}{{ $agent = replaceAll "=" " " . }}{{ end }}
    {{- end }}
    server {{ .AllocID }} {{ .Address }}:{{ .Port }} {{ $agent }}
    {{- end }}
