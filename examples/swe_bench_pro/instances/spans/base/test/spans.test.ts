import test from 'node:test';
import assert from 'node:assert';
import { written } from '../src/spans.ts';

test('seconds', () => assert.deepStrictEqual([written(0), written(59)], ['0s', '59s']));
test('minutes', () => assert.deepStrictEqual([written(60), written(61)], ['1m', '1m 1s']));
