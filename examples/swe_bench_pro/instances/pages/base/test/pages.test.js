'use strict';

const test = require('node:test');
const assert = require('node:assert');
const { pages } = require('../lib/pages.js');

test('full pages', () => assert.deepStrictEqual(pages([1, 2, 3, 4], 2), [[1, 2], [3, 4]]));
test('nothing', () => assert.deepStrictEqual(pages([], 3), []));
