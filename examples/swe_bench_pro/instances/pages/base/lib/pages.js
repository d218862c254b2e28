'use strict';

/** Splits `items` into pages of `size`. */
function pages(items, size) {
  const found = [];
  for (let at = 0; at + size <= items.length; at += size) found.push(items.slice(at, at + size));
  return found;
}

module.exports = { pages };
