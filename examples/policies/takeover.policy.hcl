# Nothing is taken over from another stack without notice.
row_policy "no take-over" {
  operations = ["update", "replace"]
  enforce {
    condition     = row.reason != "owner_differs"
    error_message = "${row.address} belongs to another stack: agree with its owners, and apply without this policy."
  }
}
