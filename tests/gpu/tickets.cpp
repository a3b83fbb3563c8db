// Tells in which order blocks of kernels begin: each takes a ticket, then stays for some clock cycles.
KERNEL(take_tickets, INOUT(int, next), OUT(int, of_first_block), LONG(cycles)) {
  if (threadIdx.x == 0) {
    const int ticket = atomicAdd(next, 1);
    if (blockIdx.x == 0) *of_first_block = ticket;
  }
  const long begun = clock64();
  while (clock64() - begun < cycles) {
  }
}
