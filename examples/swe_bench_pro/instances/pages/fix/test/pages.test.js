'use strict';

const test = require('node:test');
const assert = require('node:assert');
const { pages } = require('../lib/pages.js');

test('full pages', () => assert.deepStrictEqual(pages([1, 2, 3, 4], 2), [[1, 2], [3, 4]]));
test('nothing', () => assert.deepStrictEqual(pages([], 3), []));
test('a shorter last page', () => assert.deepStrictEqual(pages([1, 2, 3], 2), [[1, 2], [3]]));
test('a size that is none', () => assert.throws(() => pages([1, 2, 3], 1.5), RangeError));
