# Everything has a team that is called when it breaks.
locals {
  teams = ["data", "web", "platform"]
}

row_policy "a team" {
  operations = ["create", "update", "replace"]
  enforce {
    condition     = contains(local.teams, lookup(row.labels, "team", ""))
    error_message = "${row.address}: labels must have team, one of ${join(", ", local.teams)}."
  }
}
