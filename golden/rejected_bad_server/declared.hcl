# A server is host:port.
muster {
  stack = "etl"
}

zookeeper {
  servers = ["zk1:notaport"]
}

job "a" {
  root    = "/jobs"
  workers = 4
}
