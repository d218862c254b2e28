/** Entries by priority: the lowest number leaves first, equal ones in the order in which they came. */
export class Queue<T> {
  private entries: { value: T; priority: number }[] = [];

  add(value: T, priority: number): void {
    let at = this.entries.length;
    while (at > 0 && this.entries[at - 1].priority > priority) at -= 1;
    this.entries.splice(at, 0, { value, priority });
  }

  peek(): T | undefined {
    return this.entries[0]?.value;
  }

  take(): T | undefined {
    return this.entries.shift()?.value;
  }
}
