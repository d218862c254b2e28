"""The dashboard: a small web app over the index. It only reads."""
