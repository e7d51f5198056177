# The example of the README: jobs of two regions and a nightly one.
muster { stack = "etl" }

job "ingest" {
  for_each = { eu = 4, us = 8 }
  name     = "ingest-${each.key}"
  root     = "/jobs"
  workers  = each.value
}

job "nightly" {
  root    = "/jobs"
  workers = 12
}
