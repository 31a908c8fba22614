"""From records to decisions: tables, claims and reports, made from what runs left behind.

Run from the clone: `python -m analysis report DIR`. Of sweeper it knows the record's schema, the
errors and the parity rule; it imports neither torch nor hydra nor submitit.
"""
