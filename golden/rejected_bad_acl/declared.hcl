# An ACL entry is scheme:id:perms.
muster {
  stack = "etl"
}

zookeeper {
  acl = ["everybody"]
}

job "a" {
  root    = "/jobs"
  workers = 4
}
