# Two teams, one ZooKeeper, one root: each file is a configuration with a stack of its own.
#
#   muster apply examples/team-a.hcl
#   muster apply examples/team-b.hcl
#
# Jobs of the other stack are counted as unmanaged and never changed. If both declare a job with the same path, the
# second plan says "blocked: owned by stack team-a".

muster {
  stack = "team-a"
}

defaults {
  root = "/jobs/shared"

  labels = {
    team = "a"
  }
}

job "clicks" {
  workers = 8
}

job "sessions" {
  workers = 4
}
