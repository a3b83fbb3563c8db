// Which nodes meet in elements, and where a node's elements put what they add to its row.
//
//   K nodes an element; a place p = e * K + a stands for node a of element e
//   places[starts[i] .. starts[i + 1]): those of node i, ascending
//
// offset: type of the places in a row.
CONSTANTS(INT(K), TYPE(offset))

// One thread: each node's places in ascending order; `next` begins as a copy of `starts`.
KERNEL(sort_places, IN(int, nodes), LONG(count), INOUT(int, next), OUT(int, places)) {
  PARTS(only, 1) for (long p = 0; p < count; p++) places[next[nodes[p]]++] = (int)p;
}

// room[K * starts[i] ...): the nodes that node i meets, itself among them, ascending; how many.
KERNEL(meet, IN(int, nodes), IN(int, starts), IN(int, places), LONG(n), OUT(int, room),
       OUT(int, counts)) {
  PARTS(i, n) {
    int *met = room + (long)K * starts[i];
    int count = 0;
    for (long t = starts[i]; t < starts[i + 1]; t++) {
      const int *element = nodes + places[t] / K * K;
      for (int b = 0; b < K; b++) {
        int at = count;
        while (at > 0 && met[at - 1] > element[b]) at--;
        if (at > 0 && met[at - 1] == element[b]) continue;
        for (int later = count++; later > at; later--) met[later] = met[later - 1];
        met[at] = element[b];
      }
    }
    counts[i] = count;
  }
}

// columns[rows[i] ...): what was met, without gaps; diagonal[i]: where i itself is among them;
// offsets[t * K + b]: where node b of the element at places[t] is in its row.
KERNEL(pack_rows, IN(int, nodes), IN(int, starts), IN(int, places), IN(int, room), IN(int, rows),
       LONG(n), OUT(int, columns), OUT(int, diagonal), OUT(offset, offsets)) {
  PARTS(i, n) {
    const int *met = room + (long)K * starts[i];
    const int count = rows[i + 1] - rows[i];
    int *row = columns + rows[i];
    for (int k = 0; k < count; k++) {
      row[k] = met[k];
      if (met[k] == i) diagonal[i] = rows[i] + k;
    }
    for (long t = starts[i]; t < starts[i + 1]; t++) {
      const int *element = nodes + places[t] / K * K;
      for (int b = 0; b < K; b++) {
        int at = 0;
        while (row[at] != element[b]) at++;
        offsets[t * K + b] = (offset)at;
      }
    }
  }
}
