# A record that somebody edited by hand is written anew, even where the declared fields are as declared: drift names it until then.
muster {
  stack = "etl"
}

job "a" {
  root    = "/jobs"
  workers = 4
}
