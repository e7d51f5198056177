# In production nobody is in a hurry to call a job stale.
row_policy "patience" {
  operations = ["create", "update", "replace"]
  filter     = row.kind == "job" && endswith(plan.stack, "-prod")
  enforce {
    condition     = seconds(row.after.timeouts.stale) >= 30
    error_message = "${row.address}: timeouts.stale is ${row.after.timeouts.stale}, and in production at least 30s."
  }
}
