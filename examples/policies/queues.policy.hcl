# Queues stay off the shared Redis, and lose no task at the first failure.
row_policy "queues" {
  operations = ["create", "update", "replace"]
  filter     = row.kind == "queue"
  enforce {
    condition     = startswith(row.after.redis, "rediss://")
    error_message = "${row.address}: use TLS (rediss://)."
  }
  enforce {
    condition     = row.after.attempts >= 2
    error_message = "${row.address}: a task is tried at least twice."
  }
}
