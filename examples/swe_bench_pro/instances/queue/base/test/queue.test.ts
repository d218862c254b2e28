import test from 'node:test';
import assert from 'node:assert';
import { Queue } from '../src/queue.ts';

test('takes the urgent one', () => {
  const queue = new Queue<string>();
  queue.add('later', 5);
  queue.add('now', 1);
  assert.strictEqual(queue.take(), 'now');
});

test('an empty queue', () => assert.strictEqual(new Queue<number>().take(), undefined));
