'use strict';

const test = require('node:test');
const assert = require('node:assert');
const { match } = require('../lib/router.js');

test(' finds a fixed path', () => assert.deepStrictEqual(match('/about', '/about'), {}));
test('finds nothing', () => assert.strictEqual(match('/about', '/other'), null));
test('decodes parameters ', () => assert.deepStrictEqual(match('/user/:name', '/user/J%C3%BCrgen'), { name: 'Jürgen' }));
test('a bad escape is no match', () => assert.strictEqual(match('/user/:name', '/user/%zz'), null));
test('a slash at the end is the same page – also for /', () => {
  assert.deepStrictEqual(match('/user/:name', '/user/ann/'), { name: 'ann' });
  assert.deepStrictEqual(match('/', '/'), {});
});
