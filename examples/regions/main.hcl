# One declaration makes a job for each region. The sizes come from variables.
#
#   muster plan examples/regions                                                 the sizes of sizes.auto.vars.hcl
#   muster plan examples/regions --var-file examples/regions/prod.vars.hcl       those of production
#   muster plan examples/regions --var 'regions={ eu = 2 }'                      only one region
#
# A variable takes the last value that is given in this order: default, MUSTER_VAR_name in the environment,
# *.auto.vars.hcl, then --var-file and --var in the order of the command line.

muster {
  stack            = "regions-${var.environment}"
  required_version = ">= 0.1"
}

defaults { # for every job of this configuration
  root = "/jobs/${var.environment}"

  timeouts {
    join = "2m"
  }
}

job "ingest" {
  for_each = var.regions          # addresses job.ingest["eu"], job.ingest["us"], ...
  name     = "ingest-${each.key}" # every instance needs a znode name of its own
  workers  = each.value

  labels = {
    region = each.key
    team   = "data"
  }

  precondition {
    condition     = each.value <= local.most
    error_message = "Region ${each.key} asks for ${each.value} workers; at most ${local.most} fit."
  }
}

job "merge" {
  workers = max(1, ceil(local.total / 8)) # one for every eight workers of ingest
}
