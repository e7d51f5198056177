package ticks

// A scenario is a list of events, and what is decided at each. Times are of one day in UTC. Policy and state are words,
// and so is a decision: see show.
type scenario struct {
	why, schedule, policy, state string
	events                       [][2]string
}

func scenarios() []scenario {
	return []scenario{
		{
			"the first holder begins with what falls due from then on", "*/15 * * * *", "latest", "",
			[][2]string{
				{"taken 12:01", "cursor 12:01; again 12:15"},
				{"look 12:15:00.2", "running 12:15#1 new; cursor 12:15; again 12:30"},
				{"success 12:16", "done 12:15#1; again 12:30"},
				{"look 12:29:59", "again 12:30"},
				{"look 12:30", "running 12:30#1 new; cursor 12:30; again 12:45"},
			},
		},
		{
			"a tick that falls due while the last run goes on is skipped", "0 * * * *", "latest", "cursor 11:00",
			[][2]string{
				{"look 12:00", "running 12:00#1 new; cursor 12:00; again 13:00"},
				{"look 13:00", "skipped 13:00; cursor 13:00; again 14:00"},
				{"success 13:30", "done 12:00#1; again 14:00"},
				{"look 14:00", "running 14:00#1 new; cursor 14:00; again 15:00"},
			},
		},
		{
			"or it waits, but only one does", "0 * * * *", "latest wait", "cursor 11:00",
			[][2]string{
				{"look 12:00", "running 12:00#1 new; cursor 12:00; again 13:00"},
				{"look 13:00", "waiting 13:00#0 new; cursor 13:00; again 14:00"},
				{"look 14:00", "skipped 14:00; cursor 14:00; again 15:00"},
				{"success 14:30", "done 12:00#1; running 13:00#1; again 15:00"},
				{"look 15:00", "waiting 15:00#0 new; cursor 15:00; again 16:00"},
			},
		},
		{
			"a tick of the second in which a run ends was overlapped", "0 * * * *", "latest",
			"cursor 11:00; 11:00#1 running 11:00",
			[][2]string{{"success 12:00", "done 11:00#1; skipped 12:00; cursor 12:00; again 13:00"}},
		},
		{
			"nobody is woken each second to skip a tick, and each has its fate", "@every 1s", "latest", "cursor 11:59:59",
			[][2]string{
				{"look 12:00", "running 12:00#1 new; cursor 12:00; again 12:01"},
				{"look 12:01", "skipped 12:00:01..12:01 x60; cursor 12:01; again 12:02"},
				{"success 12:01:30.5", "done 12:00#1; skipped 12:01:01..12:01:30 x30; cursor 12:01:30; again 12:01:31"},
				{"look 12:01:31", "running 12:01:31#1 new; cursor 12:01:31; again 12:02:31"},
			},
		},
		{
			"one that may wait is not late", "@every 1s", "latest wait", "cursor 11:59:59",
			[][2]string{
				{"look 12:00", "running 12:00#1 new; cursor 12:00; again 12:00:01"},
				{"look 12:00:01", "waiting 12:00:01#0 new; cursor 12:00:01; again 12:01:01"},
			},
		},
		{
			"of what fell due while nobody held the duty, the latest runs", "0 * * * *", "latest", "cursor 7:00",
			[][2]string{{"taken 12:30", "running 12:00#1 new; missed 8:00..11:00 x4; cursor 12:00; again 13:00"}},
		},
		{
			"or none, if the latest is late too", "0 * * * *", "skip", "cursor 7:00",
			[][2]string{{"taken 12:01:01", "missed 8:00..12:00 x5; cursor 12:00; again 13:00"}},
		},
		{
			"but what is not late runs", "0 * * * *", "skip", "cursor 7:00",
			[][2]string{{"taken 12:01", "running 12:00#1 new; missed 8:00..11:00 x4; cursor 12:00; again 13:00"}},
		},
		{
			"of several that are not late the newest runs", "@every 10s", "skip", "cursor 12:00",
			[][2]string{{
				"taken 12:00:35", "running 12:00:30#1 new; missed 12:00:10..12:00:20 x2; cursor 12:00:30; again 12:01:35",
			}},
		},
		{
			"a holder that comes late is judged as if nobody had held the duty", "0 * * * *", "skip", "cursor 11:00",
			[][2]string{{"look 12:30", "missed 12:00; cursor 12:00; again 13:00"}},
		},
		{
			"or all run, one after another; what falls due meanwhile is overlapped", "0 * * * *", "all", "cursor 9:00",
			[][2]string{
				{"taken 12:30", "running 10:00#1 new; waiting 11:00#0 new; waiting 12:00#0 new; cursor 12:00; again 13:00"},
				{"success 12:40", "done 10:00#1; running 11:00#1; again 13:00"},
				{"look 13:00", "skipped 13:00; cursor 13:00; again 14:00"},
				{"success 13:10", "done 11:00#1; running 12:00#1; again 14:00"},
				{"success 13:20", "done 12:00#1; again 14:00"},
			},
		},
		{
			"a failed run begins again, after a pause that doubles", "0 * * * *", "latest retries=2", "cursor 11:00",
			[][2]string{
				{"look 12:00", "running 12:00#1 new; cursor 12:00; again 13:00"},
				{"failure 12:10", "waiting 12:00#1; again 12:10:01"},
				{"look 12:10:01", "running 12:00#2; again 13:00"},
				{"failure 12:20", "waiting 12:00#2; again 12:20:02"},
				{"look 12:20:02", "running 12:00#3; again 13:00"},
				{"failure 12:30", "failed 12:00#3; again 13:00"},
			},
		},
		{
			"between two attempts a run goes on", "@every 1s", "latest retries=9", "cursor 12:00; 12:00#4 running 12:00",
			[][2]string{
				{"failure 12:00:01", "waiting 12:00#4; skipped 12:00:01; cursor 12:00:01; again 12:00:09"},
				{"look 12:00:09", "running 12:00#5; skipped 12:00:02..12:00:09 x8; cursor 12:00:09; again 12:01:09"},
			},
		},
		{
			"a command that cannot be run: another member tries, if a retry is left",
			"0 * * * *", "latest retries=1", "cursor 12:00; 12:00#1 running 12:00",
			[][2]string{
				{"cannot-run 12:10", "waiting 12:00#1; resign; release"},
				{"taken 12:11", "running 12:00#2; again 13:00"},
				{"cannot-run 12:12", "failed 12:00#2; resign; release"},
			},
		},
		{
			"a command that was not started has made no attempt", "0 * * * *", "latest", "cursor 11:00",
			[][2]string{
				{"look 12:00", "running 12:00#1 new; cursor 12:00; again 13:00"},
				{"not-started 12:00:01", "waiting 12:00#0; resign; release"},
				{"taken 12:02", "running 12:00#1; again 13:00"},
			},
		},
		{
			"a lost run begins again even if no retry is left", "0 * * * *", "latest rerun",
			"cursor 12:00; 12:00#1 running 12:00",
			[][2]string{
				{"taken 12:20", "running 12:00#2; again 13:00"},
				{"taken 12:21", "running 12:00#3; again 13:00"},
				{"failure 12:30", "failed 12:00#3; again 13:00"},
			},
		},
		{
			"the pause between lost attempts grows too", "0 * * * *", "latest rerun",
			"cursor 12:00; 12:00#7 running 12:20",
			[][2]string{
				{"taken 12:20:20", "waiting 12:00#7; again 12:21:04"}, {"look 12:21:04", "running 12:00#8; again 13:00"},
			},
		},
		{
			"or it is over", "0 * * * *", "latest", "cursor 12:00; 12:00#1 running 12:00",
			[][2]string{{"taken 12:20", "lost 12:00#1; again 13:00"}},
		},
		{
			"what waits is not lost: the next holder goes on with it",
			"0 * * * *", "latest wait retries=1", "cursor 13:00; 12:00#1 waiting 13:10; 13:00#0 waiting",
			[][2]string{
				{"taken 13:20", "running 12:00#2; again 14:00"},
				{"success 13:30", "done 12:00#2; running 13:00#1; again 14:00"},
			},
		},
		{
			"a lost run comes before what was missed", "0 * * * *", "latest rerun", "cursor 9:00; 9:00#1 running 9:00",
			[][2]string{
				{"taken 12:00:10", "running 9:00#2; waiting 12:00#0 new; missed 10:00..11:00 x2; cursor 12:00; again 13:00"},
				{"success 12:05", "done 9:00#2; running 12:00#1; again 13:00"},
			},
		},
		{
			"who leaves finishes its run, says what is overlapped, and starts no other",
			"0 * * * *", "latest wait", "cursor 12:00; 12:00#1 running 12:00",
			[][2]string{
				{"leave", ""}, {"look 12:50", "again 13:00"},
				{"look 13:00", "waiting 13:00#0 new; cursor 13:00; again 14:00"},
				{"success 13:10", "done 12:00#1; release"},
				{"stay", ""}, {"taken 13:11", "running 13:00#1; again 14:00"},
			},
		},
		{
			"who leaves and runs nothing lets the next one choose", "0 * * * *", "latest retries=1",
			"cursor 11:00; 11:00#1 waiting 12:00",
			[][2]string{{"leave", ""}, {"look 12:00:01", "release"}},
		},
		{
			"a holder that ends its own run has lost it", "0 * * * *", "latest rerun", "cursor 12:00; 12:00#1 running 12:00",
			[][2]string{
				{"interrupted 12:01", "waiting 12:00#1; release"}, {"taken 12:01:10", "running 12:00#2; again 13:00"},
			},
		},
		{
			"at most once", "0 * * * *", "latest", "cursor 12:00; 12:00#1 running 12:00",
			[][2]string{{"interrupted 12:01", "lost 12:00#1; release"}},
		},
		{
			"what falls due in a pause, in which nobody holds the duty, is forgotten",
			"0 * * * *", "latest wait retries=1", "cursor 12:00; 12:00#1 running 12:00",
			[][2]string{
				{"leave", ""}, {"look 13:00", "waiting 13:00#0 new; cursor 13:00; again 14:00"},
				{"failure 13:10", "waiting 12:00#1; release"}, {"resume 15:30", ""},
				{"taken 15:30", "running 12:00#2; again 16:00"},
			},
		},
		{
			"an operator asks for a run", "0 * * * *", "latest", "cursor 12:00; 12:00#1 running 12:00",
			[][2]string{
				{"asked 7 12:10", "waiting now/7#0 new; again 13:00"}, {"asked 7 12:10", "again 13:00"},
				{"success 12:20", "done 12:00#1; running now/7#1; again 13:00"},
				{"success 12:30", "done now/7#1; again 13:00"}, {"asked 8 12:40", "running now/8#1 new; again 13:00"},
			},
		},
		{
			"an edit begins anew, whatever was due", "0 * * * *", "all", "cursor 7:00",
			[][2]string{{"edit */30 * * * *", ""}, {"look 12:10:30", "cursor 12:10:30; again 12:30"}},
		},
		{
			"the cursor does not go back, whatever the clock says", "0 * * * *", "latest", "cursor 12:00",
			[][2]string{
				{"taken 11:30", "again 13:00"}, {"edit */30 * * * *", ""}, {"look 11:40", "cursor 12:00; again 12:30"},
				{"resume 11:50", ""}, {"look 12:29", "again 12:30"},
			},
		},
		{
			"a failure in the future is that of a wrong clock", "0 * * * *", "latest retries=2",
			"cursor 12:00; 12:00#2 waiting 15:00",
			[][2]string{{"taken 12:10", "running 12:00#3; again 13:00"}},
		},
	}
}
