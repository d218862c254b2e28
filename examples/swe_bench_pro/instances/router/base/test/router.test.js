'use strict';

const test = require('node:test');
const assert = require('node:assert');
const { match } = require('../lib/router.js');

test(' finds a fixed path', () => assert.deepStrictEqual(match('/about', '/about'), {}));
test('finds nothing', () => assert.strictEqual(match('/about', '/other'), null));
