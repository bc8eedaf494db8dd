# HAProxy in front of the app: deploy/haproxy/cascade.cfg.tpl with the servers of Nomad's registry. Run it at the top of the
# project, or change the path in `file`. tests/deploy/test_haproxy_job.py tries its configuration and its reload.

variable "haproxy_image" {
  type        = string
  description = "An HAProxy with socat."
  default     = "haproxytech/haproxy-debian:3.2.7"
}

job "haproxy" {
  datacenters = ["*"]
  type        = "service"

  group "haproxy" {
    count = 1

    # So that HAProxy sees the addresses of its clients.
    network {
      mode = "host"

      port "http" {
        static = 8000
      }

      port "metrics" {
        static = 8405
      }
    }

    task "haproxy" {
      driver = "docker"

      # A planned stop lets requests end.
      kill_signal  = "SIGUSR1"
      kill_timeout = "30s"

      service {
        name     = "haproxy"
        provider = "nomad"
        port     = "metrics"

        check {
          type     = "http"
          path     = "/metrics"
          interval = "10s"
          timeout  = "2s"
        }
      }

      # Nothing is known of the servers at a start: what the last HAProxy knew may be old.
      config {
        image   = var.haproxy_image
        command = "sh"
        args    = ["-c", "echo 1 > /local/server-state; exec haproxy -W -db -p /local/haproxy.pid -f /local/haproxy.cfg"]
      }

      template {
        destination = "local/haproxy.cfg"
        data = replace(replace(file("deploy/haproxy/cascade.cfg.tpl"),
        "/run/haproxy/", "/local/"), "/var/lib/haproxy/", "/local/")

        # By default Nomad waits 5 s or more for further changes: ended allocations then left HAProxy 6 to 10 s after their
        # stop, against a `shutdown_delay` of 10 s. With these waits it was 1.4 and 3.7 s.
        wait {
          min = "500ms"
          max = "2s"
        }

        # With "restart" every new allocation would cut all requests.
        change_mode = "script"

        change_script {
          command = "/bin/sh"
          args    = ["/local/reload"]
          timeout = "10s"
        }
      }

      # Weights, drains and culls survive the reload.
      template {
        destination = "local/reload"
        change_mode = "noop"
        data        = <<-EOT
          echo "show servers state" | socat - /local/admin.sock > /local/server-state
          kill -USR2 "$(cat /local/haproxy.pid)"
        EOT
      }

      resources {
        cpu    = 500
        memory = 256
      }
    }
  }
}
