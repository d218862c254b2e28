'use strict';

/** Splits `items` into pages of `size`; the last one may be shorter. */
function pages(items, size) {
  if (!Number.isInteger(size) || size < 1) throw new RangeError('size must be a whole number above 0');
  const found = [];
  for (let at = 0; at < items.length; at += size) found.push(items.slice(at, at + size));
  return found;
}

module.exports = { pages };
