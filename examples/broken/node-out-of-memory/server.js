// Stores objects until the heap is full.
const stored = [];
for (;;) {
  stored.push({ number: stored.length, text: `order ${stored.length}` });
}
