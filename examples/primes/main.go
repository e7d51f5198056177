// Command primes says of numbers whether they are prime: each line of its standard input is a number, and is answered
// by a line at once. So muster executor can run it for each task, or with --lines as one process for many.
//
// What is no number ends it with exit code 65, which tells muster not to try the task again.
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
)

func main() {
	if err := answer(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "primes:", err)
		os.Exit(65)
	}
}

// answer answers each line. Nothing is buffered, so nobody waits for an answer that is there.
func answer(in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		n, err := strconv.ParseUint(lines.Text(), 10, 64)
		if err != nil {
			return err
		}
		word := "composite"
		if isPrime(n) {
			word = "prime"
		}
		if _, err := fmt.Fprintln(out, word); err != nil {
			return err
		}
	}
	return lines.Err()
}

func isPrime(n uint64) bool {
	for d := uint64(2); d <= n/d; d++ {
		if n%d == 0 {
			return false
		}
	}
	return n >= 2
}
