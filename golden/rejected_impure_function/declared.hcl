# A plan is a function of its inputs: there is no clock and no environment in expressions.
muster {
  stack = "etl"
}

job "a" {
  workers = length(timestamp())
}
