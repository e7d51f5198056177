# How many workers a stack may have in all, and one job.
locals {
  most = { "etl-prod" = 100 }
}

policy "the workers of a stack" {
  filter = contains(keys(local.most), plan.stack)
  enforce {
    condition     = sum(concat([0], [for r in plan.rows : r.after.workers if r.kind == "job" && r.after != null])) <= local.most[plan.stack]
    error_message = "Stack ${plan.stack} may have ${local.most[plan.stack]} workers: ask for more before you declare them."
  }
}

policy "the whole plan" { # a part of it says nothing about the sum
  enforce {
    condition     = !plan.partial
    error_message = "Plan without --only and --skip here: the budget is that of all jobs."
  }
}

row_policy "large jobs" {
  enforcement_level = "advisory"
  operations        = ["create", "update", "replace"]
  filter            = row.kind == "job"
  enforce {
    condition     = row.after.workers <= 64
    error_message = "${row.address} has ${row.after.workers} workers: two jobs would restart faster."
  }
}
