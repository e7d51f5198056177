# Read only with --var-file examples/regions/prod.vars.hcl

environment = "prod"

regions = {
  ap = 8
  eu = 12
  us = 24
}
