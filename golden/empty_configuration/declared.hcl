# A configuration without jobs plans the delete of all that the stack owns; apply has a guard against it.
muster {
  stack = "etl"
  roots = ["/jobs"]
}
