/** Entries by priority: the lowest number leaves first. */
export class Queue<T> {
  private entries: { value: T; priority: number }[] = [];

  add(value: T, priority: number): void {
    let at = 0;
    while (at < this.entries.length && this.entries[at].priority < priority) at += 1;
    this.entries.splice(at, 0, { value, priority });
  }

  take(): T | undefined {
    return this.entries.shift()?.value;
  }
}
