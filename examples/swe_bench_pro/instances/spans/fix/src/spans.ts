const UNITS: [string, number][] = [
  ['d', 86400],
  ['h', 3600],
  ['m', 60],
  ['s', 1],
];

/** A span of time as people write it: `2d 3m`, `-1h 5s`. */
export function written(seconds: number): string {
  let rest: number = Math.abs(seconds);
  const parts: string[] = [];
  for (const [name, size] of UNITS) {
    const count: number = Math.floor(rest / size);
    rest -= count * size;
    if (count > 0) parts.push(`${count}${name}`);
  }
  return (seconds < 0 ? '-' : '') + (parts.join(' ') || '0s');
}
