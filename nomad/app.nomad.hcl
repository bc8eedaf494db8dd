# An app and its health-arbiter in one allocation. How to run it, and the traps in short: README.md.
# The numbers depend on one another; the rules in tests/deploy/nomad_rules.py say how, and check this file.

variable "app_image" {
  type        = string
  description = "The app: listens on 8080 and POSTs its errors to http://127.0.0.1:9180/errors."
}

variable "arbiter_image" {
  type        = string
  description = "Built from deploy/Dockerfile."
  default     = "health-arbiter:latest"
}

job "app" {
  datacenters = ["*"]
  type        = "service"

  update {
    max_parallel     = 1
    health_check     = "checks"
    min_healthy_time = "30s"
    healthy_deadline = "5m"
    auto_revert      = true
  }

  group "web" {
    count = 3

    # Every cull fails an allocation. By default the wait for the next one doubles with each failure, up to an
    # hour, so the budget of the fleet would not be what limits the culls, but Nomad.
    reschedule {
      delay          = "10s"
      delay_function = "constant"
      unlimited      = true
    }

    # The tasks share one localhost only in mode "bridge" or "host", and the app reaches its arbiter there. In any
    # other mode let both use the unix socket in the shared directory instead: see ARBITER_SOCKET below.
    network {
      mode = "bridge"

      port "app" {
        to = 8080
      }

      port "arbiter" {
        to = 9181
      }

      port "arbiter_agent" {
        to = 9182
      }

      # For the status page (ARBITER_PAGE_LISTEN = "0.0.0.0:9183"): README.md, "What else there is".
      # port "arbiter_page" { to = 9183 }
    }

    task "app" {
      driver = "docker"

      # A planned stop: out of discovery first, then this long for HAProxy to follow and requests to end. Older Nomad
      # (before autumn 2026) skips it when a check restarts the task: hence the arbiter drains HAProxy first.
      shutdown_delay = "10s"
      kill_timeout   = "30s"

      # Not restarted in place but failed, so that reschedule places a new allocation, on another node if it can: one
      # fresh start for each token, wherever the trouble was.
      restart {
        attempts = 0
        mode     = "fail"
      }

      # Where HAProxy finds the app (deploy/haproxy). The tag carries the host port of the agent check.
      service {
        name     = "app"
        provider = "nomad"
        port     = "app"
        tags     = ["agent-port=${NOMAD_HOST_PORT_arbiter_agent}"]
      }

      # Why Nomad restarts the app: the arbiter says so. In the TASK that is to be restarted, though the port is the
      # sidecar's: in a group service, check_restart restarts every task of the group, the arbiter included.
      service {
        name     = "app-health"
        provider = "nomad"
        port     = "arbiter"

        # What the sidecar calls its service: Prometheus' label for it, see deploy/prometheus.
        tags = ["arbiter-service=${NOMAD_JOB_NAME}.${NOMAD_GROUP_NAME}"]

        check {
          name     = "arbiter"
          type     = "http"
          path     = "/health/nomad"
          interval = "5s"
          timeout  = "2s"

          # Only where ARBITER_TLS_DOORS has `public`. Nomad asks by address, which no certificate has.
          # protocol        = "https"
          # tls_skip_verify = true

          # Nomad takes any status below 400 as good, and one good sample starts the count again: hence 503, and an
          # answer that is latched. It restarts after interval x (limit - 1) of nothing but failures, 20 s here,
          # and a silent sidecar is a failure too: a sidecar that is killed, or stopped and started, must be
          # back well before that. `grace` covers the pull of the sidecar's image on a new node.
          check_restart {
            limit = 5
            grace = "90s"
          }
        }
      }

      config {
        image = var.app_image
      }

      env {
        ERRORS_URL = "http://127.0.0.1:9180/errors"
      }

      resources {
        cpu    = 500
        memory = 512
      }
    }

    task "arbiter" {
      driver = "docker"

      # Starts after the app, so that the grace below counts from the app's start, and runs as long as the app does.
      lifecycle {
        hook    = "poststart"
        sidecar = true
      }

      # Mode "fail" would take the whole allocation down with the sidecar. In mode "delay" a task that used up its
      # attempts sits out the rest of the interval, and Nomad would see a failing check all that time: with
      # attempts x delay = interval they cannot be used up.
      restart {
        attempts = 30
        delay    = "2s"
        interval = "60s"
        mode     = "delay"
      }

      # Longer than ARBITER_STOP_DRAIN, in which a stopping arbiter tells HAProxy to let go.
      kill_timeout = "15s"

      config {
        image           = var.arbiter_image
        readonly_rootfs = true
        cap_drop        = ["all"]

        # The image's own check is for plain Docker. Here it would only start one more process a minute.
        healthchecks {
          disable = true
        }
      }

      # The Redis URL has a password in it: from a Nomad variable into the environment, never into args, which
      # everybody can read. Until the variable exists the sidecar waits to start, and the deployment is not healthy.
      # "noop", because a changed password would otherwise restart every sidecar of the fleet within seconds, and each
      # drains its app while it stops. Roll a new password out with a job update, max_parallel at a time.
      template {
        destination = "${NOMAD_SECRETS_DIR}/arbiter.env"
        env         = true
        change_mode = "noop"
        data        = <<-EOT
          {{ with nomadVar "nomad/jobs/app/web/arbiter" }}
          ARBITER_REDIS_URL={{ .redis_url.Value | toJSON }}
          {{ end }}
        EOT
      }

      # Service, instance and state directory (alloc/tmp) come from Nomad's own variables.
      env {
        # "shadow" first: it only says what it would do.
        ARBITER_MODE = "enforce"

        # How long a new app may fail while it starts.
        ARBITER_GRACE = "30s"

        # Between HAProxy letting go and Nomad being told. Longer than HAProxy needs to notice (6 s at most) and the
        # slowest request to end.
        ARBITER_DRAIN = "10s"

        ARBITER_STOP_DRAIN = "5s"

        # Replaced at this age too, one after the other and without a token. n containers of d seconds each (REPLACE_TIME)
        # need n * d < LIFETIME, or more RETIRE_SLOTS: `health-arbiter doctor` reckons it.
        # ARBITER_LIFETIME = "6h"

        # Without a shared localhost. The socket has mode 0660: both images must run as the same group.
        # ARBITER_SOCKET = "${NOMAD_ALLOC_DIR}/tmp/arbiter.sock"
      }

      resources {
        cpu        = 50
        memory     = 64
        memory_max = 128
      }
    }
  }
}
