import test from 'node:test';
import assert from 'node:assert';
import { written } from '../src/spans.ts';

test('seconds', () => assert.deepStrictEqual([written(0), written(59)], ['0s', '59s']));
test('minutes', () => assert.deepStrictEqual([written(60), written(61)], ['1m', '1m 1s']));
test('hours and days', () => assert.deepStrictEqual([written(172800 + 180), written(3605)], ['2d 3m', '1h 5s']));
test('a negative span', () => assert.strictEqual(written(-3605), '-1h 5s'));
