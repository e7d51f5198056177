package spec

import (
	"muster/queue"
)

// queues is the kind of queue blocks.
func queues() kindOf[queue.Queue, *queue.Queue] {
	return kindOf[queue.Queue, *queue.Queue]{
		table: table[queue.Queue]{
			blockType: queue.KindName, properties: queue.Properties(),
			words: map[string]words{
				"redis": {
					code:    codeRedis,
					missing: "queue %q does not say which Redis holds its tasks",
					add:     `add: redis = "redis://redis-1:6379/0"`,
					secret:  queue.ErrCredentials, secretCode: codeCredentials,
				},
				"attempts": {
					code: codeAttempts,
					less: "to try each task once only, write 1",
					more: "a task that has failed so often fails again",
				},
			},
		},
		inside: "executors and watchers", initial: queue.Default(),
		add:    func(c *Config, q queue.Queue) { c.Queues = append(c.Queues, q) },
		limits: queue.Queue.CheckSizes, tooLarge: codeSizes,
	}
}
