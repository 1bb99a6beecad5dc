// Package gentle decides how small batches are and how long the pauses after them, while others use the server: from
// how long a small commit takes during batches, compared with one while none is open. It is pure arithmetic except for
// the probe. Package throttle asks it.
package gentle
