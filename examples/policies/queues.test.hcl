run "a queue with TLS" {
  variables {
    queues = { mail = "rediss://redis-1:6380/0" }
  }
  assert {
    condition     = plan.rows["queue.tasks[\"mail\"]"].after.attempts >= 2
    error_message = "It is tried once."
  }
}

run "a queue without TLS" {
  variables {
    queues = { mail = "redis://redis-1:6379/0" }
  }
  expect_failures = ["queues"]
}
