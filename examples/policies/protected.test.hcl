run "gold is deleted" {
  found "/jobs/old" {
    record = { workers = 4, labels = { tier = "gold", team = "data" } }
  }
  expect_failures = ["gold is kept", "no deletes by CI"]
}

run "bronze is deleted" {
  found "/jobs/old" {
    record = { workers = 4, labels = { tier = "bronze", ephemeral = "true" } }
  }
  assert {
    condition     = plan.rows["/jobs/old"].action == "delete"
    error_message = "It is ${plan.rows["/jobs/old"].action}."
  }
}

run "gold without protection" {
  variables {
    jobs = { nightly = { workers = 4, labels = { tier = "gold", team = "data" } } }
  }
  expect_failures = ["gold is protected"]
}

run "gold with protection" {
  variables {
    jobs = { nightly = { workers = 4, labels = { tier = "gold", team = "data" }, protect = true } }
  }
  assert {
    condition     = plan.rows["job.batch[\"nightly\"]"].after.lifecycle.protect
    error_message = "It is not protected."
  }
}

run "the label goes with a change that replaces the job" {
  variables {
    jobs = { nightly = { workers = 8 } }
  }
  found "/jobs/nightly" {
    record = { workers = 4, labels = { tier = "gold", team = "data" } }
  }
  expect_failures = ["gold is kept"]
}
