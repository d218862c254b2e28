'use strict';

/** The parameters of `path` by `pattern`, decoded, or null when it does not match. */
function match(pattern, path) {
  const wanted = parts(pattern);
  const given = parts(path);
  if (wanted.length !== given.length) return null;
  const found = {};
  for (let at = 0; at < wanted.length; at += 1) {
    if (wanted[at].startsWith(':')) {
      const value = decoded(given[at]);
      if (value === null) return null;
      found[wanted[at].slice(1)] = value;
    } else if (wanted[at] !== given[at]) {
      return null;
    }
  }
  return found;
}

function parts(path) {
  return (path.length > 1 && path.endsWith('/') ? path.slice(0, -1) : path).split('/');
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return null;
  }
}

module.exports = { match };
