'use strict';

/** The parameters of `path` by `pattern`, or null when it does not match. */
function match(pattern, path) {
  const wanted = pattern.split('/');
  const given = path.split('/');
  if (wanted.length !== given.length) return null;
  const found = {};
  for (let at = 0; at < wanted.length; at += 1) {
    if (wanted[at].startsWith(':')) found[wanted[at].slice(1)] = given[at];
    else if (wanted[at] !== given[at]) return null;
  }
  return found;
}

module.exports = { match };
