# A job grows or shrinks by half at most in one change: a slip of a digit is found.
row_policy "no leaps" {
  operations = ["replace", "update"]
  filter     = contains(keys(row.changes), "workers")
  enforce {
    condition     = row.after.workers <= 2 * row.before.workers && 2 * row.after.workers >= row.before.workers
    error_message = "${row.address}: from ${row.before.workers} to ${row.after.workers} workers is a leap; go in steps."
  }
}
