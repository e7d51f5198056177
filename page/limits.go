package page

import "time"

// The limits of a server. docs/serve.md states them.
const (
	// MaxConnections is how many connections are open at a time. One more closes the one that has waited longest for a
	// request. If none waits, it gets an answer that says so, and is closed.
	MaxConnections = 1000
	// MaxStreams is how many of them may be streams: pages that are open somewhere.
	MaxStreams = 500
	// MaxFromAddress and MaxStreamsFromAddress are how many of them one address may have. Behind a proxy that is all.
	MaxFromAddress        = MaxConnections / 2
	MaxStreamsFromAddress = MaxStreams / 2
	// MaxViews is how many different pages are shown at a time. Those that nobody looks at make room for others.
	MaxViews = 100
	// MaxDetails is how many jobs, groups and queues are looked at in detail at a time.
	MaxDetails = 250

	// renderEvery is how often a view is drawn again while things change. One that is slow to draw is drawn less often,
	// after twice the time that it took, but not later than renderLatest.
	renderEvery  = 250 * time.Millisecond
	renderLatest = time.Second
	// viewLinger is how long a view is kept that nobody looks at: the stream of a page comes after the page.
	viewLinger = 10 * time.Second
	// maxBehind and maxBehindBytes are what is kept of a view for streams that are behind. Who lacks more loads anew.
	maxBehind      = 64
	maxBehindBytes = 1 << 20

	// writeTimeout is how long a reader may take for writeChunk bytes. A slower one is dropped.
	writeTimeout = 10 * time.Second
	writeChunk   = 32 << 10
	// socketBuffer is what the kernel holds of what was written to a connection.
	socketBuffer = 64 << 10
	// answerTimeout is how long any other answer may take altogether.
	answerTimeout = time.Minute
	// maxAnswers is how many documents of the API are made and sent at a time, maxScrapes how many of /metrics.
	maxAnswers = 16
	maxScrapes = 4
	// maxSeries is how many jobs, groups and queues have series of their own in /metrics.
	maxSeries = 10_000
	// aliveEvery is how often a stream says that it is there.
	aliveEvery = 15 * time.Second
	// firstRead is how long a request waits for what was not read yet.
	firstRead = 30 * time.Second

	maxHeader         = 16 << 10
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = time.Minute
	// shutdownTimeout is how long the server waits, at its end, for what is being answered.
	shutdownTimeout = 3 * time.Second

	// maxURL is the longest path with its query that is a page.
	maxURL = 2 << 10
)

// How ZooKeeper is read.
const (
	// maxHistory is how many applies are shown, of all stacks together.
	maxHistory = 2000
	// readEvery is how often it is read again while things change; after a reading that took longer, as long as that, but
	// not later than readLatest.
	readEvery  = 100 * time.Millisecond
	readLatest = time.Second
	// A session that was lost is replaced after firstRedial; after each failure the wait doubles, up to lastRedial.
	firstRedial = 500 * time.Millisecond
	lastRedial  = 10 * time.Second
)

// How Redis is read, while somebody looks at a queue.
const (
	redisEvery   = time.Second
	redisTimeout = 3 * time.Second
	// rateOver is the time over which the rate of a batch is taken.
	rateOver = 10 * time.Second
)
