"""Models of one's own files: `local:FILE.gguf`, served on this machine for as long as a process uses them."""
