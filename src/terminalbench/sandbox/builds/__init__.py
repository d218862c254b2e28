"""From a Dockerfile to a layer: reading it, its context, carrying it out, caching the layer."""
