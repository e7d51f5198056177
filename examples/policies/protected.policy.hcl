# What bears the label tier = "gold" is neither deleted nor replaced, and must say so itself.
row_policy "gold is kept" {
  operations = ["delete", "replace"]
  filter     = lookup(row.before.labels, "tier", "") == "gold" # row.labels are the new ones
  enforce {
    condition     = false
    error_message = "${row.address} is gold: take the label off first, in a change of its own."
  }
}

row_policy "gold is protected" {
  operations = ["create", "update"]
  filter     = lookup(row.labels, "tier", "") == "gold"
  enforce {
    condition     = row.after.lifecycle.protect
    error_message = "${row.address} is gold: write lifecycle { protect = true }."
  }
}
