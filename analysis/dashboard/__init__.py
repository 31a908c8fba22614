"""W&B views by code, and tables and figures in a sweep's W&B group.

Importing this package imports none of W&B's libraries.
"""
