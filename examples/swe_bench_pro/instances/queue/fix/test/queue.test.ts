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

test('equal priorities keep their order', () => {
  const queue = new Queue<string>();
  for (const name of ['a', 'b', 'c']) queue.add(name, 1);
  assert.deepStrictEqual([queue.take(), queue.take(), queue.take()], ['a', 'b', 'c']);
});

test('peek leaves it', () => {
  const queue = new Queue<string>();
  queue.add('a', 1);
  assert.strictEqual(queue.peek(), 'a');
  assert.strictEqual(queue.take(), 'a');
  assert.strictEqual(queue.peek(), undefined);
});
