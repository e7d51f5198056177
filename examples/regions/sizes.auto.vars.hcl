# Read automatically, because its name ends with .auto.vars.hcl.

regions = {
  eu = 2
  us = 4
}
