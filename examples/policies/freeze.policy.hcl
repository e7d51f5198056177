# Nothing is changed while nobody is there to look after it. Damage is still mended.
locals {
  freezes = [
    { from = "2026-12-21T00:00:00Z", until = "2027-01-04T06:00:00Z" },
  ]
  changes = ["create", "update", "replace", "delete"]
}

policy "no changes from Friday noon to Monday" {
  filter = (
    plan.weekday == "Saturday" || plan.weekday == "Sunday" ||
    plan.weekday == "Friday" && tonumber(formatdate("h", plan.now)) >= 12
  )
  enforce {
    condition     = length([for r in plan.rows : r if contains(local.changes, r.action) && r.reason != "damaged"]) == 0
    error_message = "It is ${plan.weekday}, ${plan.now}: wait for Monday, or ask who is on call."
  }
}

policy "no changes in a freeze" {
  filter = anytrue([
    for f in local.freezes : timecmp(plan.now, f.from) >= 0 && timecmp(plan.now, f.until) < 0
  ])
  enforce {
    condition     = length([for r in plan.rows : r if contains(local.changes, r.action) && r.reason != "damaged"]) == 0
    error_message = "The year ends without changes."
  }
}
