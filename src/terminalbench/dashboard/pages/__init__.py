"""One module a page. A page is a function from a question to a `Page`; the frame does the rest."""
