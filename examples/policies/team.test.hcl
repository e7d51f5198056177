run "no team" {
  variables {
    jobs = { ingest = { workers = 4, labels = {} } }
  }
  expect_failures = ["a team"]
}

run "an unknown team" {
  variables {
    jobs = { ingest = { workers = 4, labels = { team = "dta" } } }
  }
  expect_failures = ["a team"]
}

run "a known team" {
  variables {
    jobs = { ingest = { workers = 4, labels = { team = "web" } } }
  }
  assert {
    condition     = plan.rows["job.batch[\"ingest\"]"].labels.team == "web"
    error_message = "It has another team."
  }
}
