# For the pipeline: people delete by hand, without this policy.
row_policy "no deletes by CI" {
  operations = ["delete"]
  enforce {
    condition     = lookup(row.labels, "ephemeral", "") == "true"
    error_message = "${row.address} would be deleted: do that by hand, with muster apply."
  }
}

policy "few deletes in prod" {
  filter = endswith(plan.stack, "-prod")
  enforce {
    condition     = length([for r in plan.rows : r if r.action == "delete"]) <= 3
    error_message = "Ask the platform team."
  }
}
