run "in a hurry" {
  variables {
    jobs = { ingest = { workers = 4, stale = "29s" } }
  }
  expect_failures = ["patience"]
}

run "patient" {
  variables {
    jobs = { ingest = { workers = 4, stale = "1m30s" } }
  }
  assert {
    condition     = seconds(plan.rows["job.batch[\"ingest\"]"].after.timeouts.stale) == 90
    error_message = "It is not patient."
  }
}
