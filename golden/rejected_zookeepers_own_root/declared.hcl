# Nothing may be declared below ZooKeeper's own folder.
muster {
  stack = "etl"
}

job "a" {
  root    = "/zookeeper/quota"
  workers = 4
}
