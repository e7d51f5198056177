run "on a Wednesday" {
  now = "2026-11-25T12:00:00Z"
  assert {
    condition     = plan.rows["job.batch[\"nightly\"]"].action == "create"
    error_message = "The job is not created."
  }
}

run "on a Friday morning" {
  now = "2026-11-27T11:59:00Z"
  assert {
    condition     = plan.weekday == "Friday"
    error_message = "It is ${plan.weekday}."
  }
}

run "on a Friday afternoon" {
  now             = "2026-11-27T12:00:00Z"
  expect_failures = ["no changes from Friday noon to Monday"]
}

run "on a Sunday, and nothing changes" {
  now = "2026-11-29T12:00:00Z"
  found "/jobs/nightly" {}
  assert {
    condition     = plan.rows["job.batch[\"nightly\"]"].action == "unchanged"
    error_message = "Something changes."
  }
}

run "at the end of the year" {
  now             = "2026-12-23T12:00:00Z"
  expect_failures = ["no changes in a freeze"]
}
