# All actions in one plan, in their order: create, replace, delete, update, blocked, left running.
muster {
  stack = "etl"
}

job "ingest" {
  for_each = { eu = 12, us = 24 }
  name     = "ingest-${each.key}"
  root     = "/jobs"
  workers  = each.value
}

job "nightly" {
  root    = "/jobs"
  workers = 12
}

job "report" {
  root    = "/jobs"
  workers = 16
}

job "tuned" {
  root    = "/jobs"
  workers = 4
  labels  = { team = "data" }
}
