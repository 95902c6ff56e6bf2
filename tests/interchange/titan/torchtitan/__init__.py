"""Names of torchtitan, for the round trip of its exporter: see stand_in.py."""
