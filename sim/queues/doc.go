// Package queues has worlds of a queue: submitters, executors and watchers. Tests only.
package queues
