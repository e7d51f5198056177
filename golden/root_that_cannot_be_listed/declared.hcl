# Without permission to list a root, its undeclared jobs are unseen, and the plan says so.
muster {
  stack = "etl"
}

job "a" {
  root    = "/jobs"
  workers = 4
}
