run "twice as many" {
  variables {
    jobs = { ingest = { workers = 8 } }
  }
  found "/jobs/ingest" {
    record = { workers = 4 }
  }
  assert {
    condition     = plan.rows["job.batch[\"ingest\"]"].changes["workers"].after == 8
    error_message = "It does not grow."
  }
}

run "a digit too many" {
  variables {
    jobs = { ingest = { workers = 40 } }
  }
  found "/jobs/ingest" {
    record = { workers = 4 }
  }
  expect_failures = ["no leaps"]
}
