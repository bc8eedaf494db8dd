{{- /*
  cascade.cfg with a server line for each allocation in Nomad's own service registry, for Nomad's template block or
  for consul-template. A server is named after its allocation: so the state file knows it again after a reload.
  The agent's port stands in the tag "agent-port=<port>"; without one there is no agent, and the weight stays full.
*/ -}}
global
    log stdout format raw local0
    maxconn 4000
    stats socket /run/haproxy/admin.sock mode 660 level admin
    # Written before each reload, read at the start. Once, before the first start: echo 1 > this file.
    server-state-file /var/lib/haproxy/server-state

defaults
    mode http
    log global
    option httplog
    option dontlognull
    option log-health-checks        # one line for each change of a server, with the reason
    timeout connect 500ms           # one network hop; whoever does not answer by then is passed over
    timeout client 30s
    timeout server 10s              # longer than the slowest request
    timeout queue 250ms             # every server is full: say so at once, before the queue is what users wait for
    timeout http-request 10s        # a client that sends its headers slower than this is dropped
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
    balance roundrobin              # in proportion to the weights, which an agent may change without a reload
    retries 2                       # so three servers see a request at the most
    option redispatch 1             # and every retry goes to another server
    retry-on conn-failure empty-response 500 502 503 504
    # What may change something is sent once. A connection that failed has sent nothing, and is retried all the same.
    http-request disable-l7-retry unless { method GET HEAD OPTIONS }
    option httpchk
    http-check send meth GET uri / ver HTTP/1.1 hdr Host app hdr User-Agent HAProxy
    http-check expect status 200-399
    # weight 100: the agent's percent is taken of it. maxconn: twice what one server has in hand on a busy day.
    default-server weight 100 maxconn 64 slowstart 20s
    default-server check inter 2s fall 3 rise 2 agent-check agent-port 9182 agent-inter 2s
    {{- range nomadService "app" }}
    {{- $agent := "no-agent-check" }}
    {{- range .Tags }}
    {{- if regexMatch "^agent-port=[0-9]+$" . }}{{ $agent = replaceAll "=" " " . }}{{ end }}
    {{- end }}
    server {{ .AllocID }} {{ .Address }}:{{ .Port }} {{ $agent }}
    {{- end }}
