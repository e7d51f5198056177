run "a job is not declared any more" {
  found "/jobs/gone" {
    record = { workers = 4 }
  }
  expect_failures = ["no deletes by CI"]
}

run "an ephemeral one" {
  found "/jobs/pr-17" {
    record = { workers = 4, labels = { ephemeral = "true" } }
  }
  assert {
    condition     = plan.rows["/jobs/pr-17"].action == "delete"
    error_message = "It is ${plan.rows["/jobs/pr-17"].action}."
  }
}

run "many ephemeral ones" {
  found "/jobs/a" {
    record = { workers = 1, labels = { ephemeral = "true" } }
  }
  found "/jobs/b" {
    record = { workers = 1, labels = { ephemeral = "true" } }
  }
  found "/jobs/c" {
    record = { workers = 1, labels = { ephemeral = "true" } }
  }
  found "/jobs/d" {
    record = { workers = 1, labels = { ephemeral = "true" } }
  }
  expect_failures = ["few deletes in prod"]
}

run "what still runs is left alone" {
  found "/jobs/gone" {
    record = { workers = 4 }
    joined = 4
    live   = 4
  }
  assert {
    condition     = plan.rows["/jobs/gone"].action == "left running"
    error_message = "It is ${plan.rows["/jobs/gone"].action}."
  }
}
