# The other team of the root of team-a.hcl.

muster {
  stack = "team-b"

  # To take over the jobs of a stack that is not used any more, name it here and declare its jobs below:
  # take_over = ["team-old"]
}

defaults {
  root = "/jobs/shared"

  labels = {
    team = "b"
  }
}

job "billing" {
  workers = 2
}

# Nightly: the last worker that completes makes the job ready for the next night. That is the default.
job "report" {
  workers = 6

  lifecycle {
    on_complete = "reset"
  }
}
