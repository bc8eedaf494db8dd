# What the sidecar's task may do: stop and restart allocations, for ARBITER_ACTION = "nomad-stop" and "nomad-restart".
# Nomad has no smaller permission, so the token could stop any allocation of the namespace. Attach it to this one task:
#   nomad acl policy apply -namespace default -job app -group web -task arbiter arbiter-app nomad/arbiter.policy.hcl

namespace "default" {
  capabilities = ["alloc-lifecycle"]
}
