# for_each makes one row a key, sorted by address, with long names never broken.
muster {
  stack = "etl"
}

job "shard" {
  for_each = toset(["10", "9", "a-rather-long-name-that-passes-the-usual-width-of-the-column"])
  name     = "shard-${each.key}"
  root     = "/jobs"
  workers  = 2
}
