run "within the budget" {
  variables {
    jobs = { ingest = { workers = 60 }, report = { workers = 40 } }
  }
  assert {
    condition     = length(plan.rows) == 2
    error_message = "There are ${length(plan.rows)} rows."
  }
}

run "one worker too many" {
  variables {
    jobs = { ingest = { workers = 60 }, report = { workers = 41 } }
  }
  expect_failures = ["the workers of a stack"]
}

run "a large job is only advised against" {
  variables {
    jobs = { ingest = { workers = 65 } }
  }
  assert {
    condition     = plan.rows["job.batch[\"ingest\"]"].action == "create"
    error_message = "It is not created."
  }
}
