package main

import "math/rand/v2"

// The matrix has so many columns, and its numbers are below the prime. Sums of products of these fit into 64 bits.
const columns, prime = 64, 1<<31 - 1

// matrix is a square matrix, as its columns.
type matrix [columns][]uint64

// newMatrix is the same in every process.
func newMatrix() (a matrix) {
	random := rand.New(rand.NewPCG(1, 2))
	for j := range a {
		a[j] = make([]uint64, columns)
		for i := range a[j] {
			a[j][i] = random.Uint64N(prime)
		}
	}
	return a
}

// start is the vector before the first step.
func start() []uint64 {
	x := make([]uint64, columns)
	for i := range x {
		x[i] = uint64(i)
	}
	return x
}

// times multiplies x by some of the columns: the first one, and so on in strides.
func (a *matrix) times(x []uint64, first, stride int) []uint64 {
	y := make([]uint64, columns)
	for j := first; j < columns; j += stride {
		for i, v := range a[j] {
			y[i] = (y[i] + v*x[j]) % prime
		}
	}
	return y
}

// power is the vector after so many steps. It squares the matrix again and again, which takes a few milliseconds: so it
// is another way to the result than that of the workers.
func (a matrix) power(steps int) []uint64 {
	x := start()
	for ; steps > 0; steps /= 2 {
		if steps%2 == 1 {
			x = a.times(x, 0, 1)
		}
		var square matrix
		for j, column := range a {
			square[j] = a.times(column, 0, 1)
		}
		a = square
	}
	return x
}
