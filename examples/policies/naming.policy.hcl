# Names and places by which people find things.
row_policy "names" {
  operations = ["create"]
  enforce {
    condition     = can(regex("^[a-z][a-z0-9-]{2,40}$", row.after.name))
    error_message = "${row.address}: a name has 3 to 41 lower case letters, digits and -, and begins with a letter."
  }
}

row_policy "roots" {
  operations = ["create"]
  enforce {
    condition     = row.after.root == "/jobs" || startswith(row.after.root, "/jobs/")
    error_message = "${row.address}: what this stack has is below /jobs."
  }
}
