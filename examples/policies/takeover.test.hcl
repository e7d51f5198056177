run "a job of another stack is not touched anyway" {
  found "/jobs/nightly" {
    stack = "web"
  }
  assert {
    condition     = plan.rows["job.batch[\"nightly\"]"].action == "blocked"
    error_message = "It is ${plan.rows["job.batch[\"nightly\"]"].action}."
  }
}

run "a job of a stack that loses it" {
  variables {
    take_over = ["web"]
  }
  found "/jobs/nightly" {
    stack = "web"
  }
  expect_failures = ["no take-over"]
}
