"""The reader of the first version."""


def pair(line):
    """Name and value of a line."""
    name, _, value = line.rpartition("=")
    return name.split("=")[0].strip(), value.strip()
