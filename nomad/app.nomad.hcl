# An app and its health-arbiter in one allocation, restarted by a failing check. Take app-task-api.nomad.hcl instead if you
# can. README.md says how to run both, and lists the traps. The numbers depend on one another: doctor --job knows
# the rules, and a test has it examine this job.

variable "app_image" {
  type        = string
  description = "The app: listens on 8080 and POSTs its errors to http://127.0.0.1:9180/errors."
}

variable "arbiter_image" {
  type        = string
  description = "Built from deploy/Dockerfile. Give it a fixed tag: Nomad pulls `latest` at every start."
  default     = "health-arbiter:0.3.0"
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

    # Every cull makes an allocation fail. By default Nomad doubles the wait for the next allocation with each failure,
    # up to an hour. Then Nomad would limit the culls, and not the budget of the fleet.
    reschedule {
      delay          = "10s"
      delay_function = "constant"
      unlimited      = true
    }

    # The app reaches its sidecar on localhost, which the tasks share only in mode "bridge" or "host" (README.md has the
    # changes for "host"). In any other mode use the unix socket in the shared directory: see ARBITER_SOCKET below.
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

      # For the status page (ARBITER_PAGE_LISTEN = "0.0.0.0:9183"), see "More options" in README.md.
      # port "arbiter_page" { to = 9183 }
    }

    task "app" {
      driver = "docker"

      # At a planned stop Nomad deregisters the service and waits this long, so that HAProxy follows and requests end.
      # Nomad (2.0.5 too) skips the wait when a check restarts the task, so the sidecar drains HAProxy first.
      shutdown_delay = "10s"
      kill_timeout   = "30s"

      # No restart in place: the allocation fails, and `reschedule` places a new one, if possible on another node. So
      # each cull ends in a new allocation, also when the node was the cause.
      restart {
        attempts = 0
        mode     = "fail"
      }

      # HAProxy finds the app by this service (deploy/haproxy). The tag has the host port of the agent-check.
      service {
        name     = "app"
        provider = "nomad"
        port     = "app"
        tags     = ["agent-port=${NOMAD_HOST_PORT_arbiter_agent}"]

        # By this check a deployment finds out whether the app listens; it restarts nothing. If the app has a page that
        # says whether it is ready, ask that: type "http" with its path.
        check {
          name     = "app"
          type     = "tcp"
          interval = "10s"
          timeout  = "3s"
        }
      }

      # With this check the sidecar makes Nomad restart the app. The port is the sidecar's, but the service belongs to
      # the TASK that is to be restarted: in a group service check_restart restarts every task, the sidecar too.
      service {
        name     = "app-health"
        provider = "nomad"
        port     = "arbiter"

        # The sidecar's own name for its service, as a label for Prometheus: see deploy/prometheus.
        tags = ["arbiter-service=${NOMAD_JOB_NAME}.${NOMAD_GROUP_NAME}"]

        check {
          name     = "arbiter"
          type     = "http"
          path     = "/health/nomad"
          interval = "5s"
          timeout  = "2s"

          # Only if ARBITER_TLS_LISTENERS has `public`. Nomad asks by address, which no certificate has.
          # protocol        = "https"
          # tls_skip_verify = true

          # Nomad takes any status below 400 as good, and one good answer resets its count. So the sidecar answers 503
          # until the app is replaced. Nomad restarts the app after interval x (limit - 1) of failures: 20 s here. No
          # answer is a failure too, so a sidecar that restarts must be back well before that. `grace` is the time in
          # which a new node may pull the sidecar's image. Failures in it do not count: after the start of the app, a
          # restart of Nomad's agent, or an update of the job in place.
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

      # Starts after the app, so that ARBITER_GRACE counts from the app's start, and runs as long as the app.
      lifecycle {
        hook    = "poststart"
        sidecar = true
      }

      # In mode "fail" a dead sidecar would end the whole allocation. In mode "delay" a task without attempts left waits
      # for the end of the interval, and meanwhile the check fails. With attempts x delay = interval there is always an
      # attempt left.
      restart {
        attempts = 30
        delay    = "2s"
        interval = "60s"
        mode     = "delay"
      }

      # Longer than ARBITER_STOP_DRAIN, during which a stopping sidecar drains its app.
      kill_timeout = "15s"

      config {
        image           = var.arbiter_image
        readonly_rootfs = true
        cap_drop        = ["all"]

        # No core files: the memory holds passwords and tokens.
        ulimit {
          core = "0"
        }

        # The image's own check is for plain Docker. Here it would only start a process every minute.
        healthchecks {
          disable = true
        }
      }

      # The Redis URL contains a password. So it comes from a Nomad variable (README.md has the command) into the
      # environment, never into args, which everybody can read. Until the variable exists the sidecar does not start,
      # and the deployment is not healthy. Without "noop" a changed password would restart every sidecar of the fleet
      # within seconds, and each drains its app while it stops. For a new password change the variable, then the job (a
      # `meta` value is enough), and run it again: Nomad replaces max_parallel allocations at a time.
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
        # Begin with "shadow": the sidecar only says what it would do. Later set "enforce".
        ARBITER_MODE = "shadow"

        # The page, `fleet` and `/why` say if the suspects share a node or a version. The app may also report a `version`.
        ARBITER_NODE = "${node.unique.name}"
        # ARBITER_APP_VERSION = "412"

        # Time after its start in which a new app is not judged.
        ARBITER_GRACE = "30s"

        # Time between "down" for HAProxy and "down" for Nomad: more than the time in which HAProxy notices (at most
        # 6 s) plus that of the slowest request.
        ARBITER_DRAIN = "10s"

        ARBITER_STOP_DRAIN = "5s"

        # Also replaces containers at this age, one after the other and without a token. With n containers that take
        # 60s each (or the drain, if that is longer), n * 60s has to be less than this age. Otherwise raise
        # ARBITER_RETIRE_SLOTS. `health-arbiter doctor` checks it.
        # ARBITER_LIFETIME = "6h"

        # Where the app listens, inside the network of the group. By this the sidecar notices that the app was restarted
        # in place (`nomad alloc restart`), without any word of the app.
        ARBITER_APP_PORT = "${NOMAD_PORT_app}"

        # For tasks without a shared localhost. The socket has mode 0660: both images must run as the same group.
        # ARBITER_SOCKET = "${NOMAD_ALLOC_DIR}/tmp/arbiter.sock"
      }

      resources {
        cpu    = 50
        memory = 128 # commands such as `doctor` run beside the sidecar, in the same memory
      }
    }
  }
}
