# An app and its health-arbiter in one allocation. The sidecar asks Nomad's task API to stop the allocation, which Nomad
# then replaces. README.md says how to run it, and lists the traps. The numbers depend on one another:
# doctor --job knows the rules, and a test has it examine this job.

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

    # For an app that ends by itself. A cull needs none of this: Nomad replaces a stopped allocation at once.
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
      # The sidecar of a culled app has drained HAProxy before that.
      shutdown_delay = "10s"
      kill_timeout   = "30s"

      # An app that ends by itself is not restarted in place: the allocation fails, and `reschedule` places a new one,
      # if possible on another node.
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

      # The sidecar's own service, for Prometheus. It has no check: what restarts the app is ARBITER_ACTION below, and a
      # sidecar that does not answer restarts nothing.
      service {
        name     = "app-health"
        provider = "nomad"
        port     = "arbiter"

        # The sidecar's own name for its service, as a label for Prometheus: see deploy/prometheus.
        tags = ["arbiter-service=${NOMAD_JOB_NAME}.${NOMAD_GROUP_NAME}"]
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
      # for the end of the interval, and meanwhile nobody judges the app. With attempts x delay = interval there is
      # always an attempt left.
      restart {
        attempts = 30
        delay    = "2s"
        interval = "60s"
        mode     = "delay"
      }

      # Longer than ARBITER_STOP_DRAIN, during which a stopping sidecar drains its app.
      kill_timeout = "15s"

      # The token for the task API, a file that Nomad renews. With ACLs it needs the policy in arbiter.policy.hcl.
      identity {
        file = true
      }

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

        # What replaces a culled app, asked for after the drain. "nomad-restart" restarts the app in place
        # instead; it needs ARBITER_NOMAD_TASK = "app".
        ARBITER_ACTION = "nomad-stop"

        # Time between "down" for HAProxy and the action: more than the time in which HAProxy notices (at most 6 s) plus
        # that of the slowest request.
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
