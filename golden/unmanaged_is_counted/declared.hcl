# What is not ours is counted and never changed: other stacks, foreign znodes, classic jobs, what cannot be read.
muster {
  stack = "etl"
}

job "ours" {
  root    = "/jobs"
  workers = 4
}
