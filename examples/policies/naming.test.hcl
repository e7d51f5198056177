run "a good name" {
  variables {
    jobs = { ingest-eu = { workers = 4, root = "/jobs/eu" } }
  }
  assert {
    condition     = plan.rows["job.batch[\"ingest-eu\"]"].after.name == "ingest-eu"
    error_message = "It has another name."
  }
}

run "a short name" {
  variables {
    jobs = { in = { workers = 4 } }
  }
  expect_failures = ["names"]
}

run "what has a bad name already is left alone" {
  variables {
    jobs = { IN = { workers = 4 } }
  }
  found "/jobs/IN" {}
  assert {
    condition     = plan.rows["job.batch[\"IN\"]"].action == "unchanged"
    error_message = "It is not."
  }
}

run "another root" {
  variables {
    jobs = { ingest = { workers = 4, root = "/elsewhere" } }
  }
  expect_failures = ["roots"]
}
